-- The keys that bytes of this store are sealed with: 'seal:' and the id, a proof of the key.
SELECT substr(name, 6), value FROM once_meta WHERE name >= 'seal:' AND name < 'seal;' ORDER BY name
