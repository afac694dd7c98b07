"""Code that tests share, one noun a file. A test puts the folder above this one on sys.path: from lib.tap import ok."""
