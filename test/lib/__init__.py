"""What tests share. A test puts its parent folder on sys.path, then: from lib.tap import ok."""
