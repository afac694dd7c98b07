-- The keys that this store was sealed with: id, and a proof of the key. Rows of once_meta named 'seal:ID'.
SELECT substr(name, 6), value FROM once_meta WHERE name >= 'seal:' AND name < 'seal;' ORDER BY name
