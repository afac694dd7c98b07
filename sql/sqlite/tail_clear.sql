-- Empties the tail after its entries were written into a segment.
DELETE FROM once_tail
