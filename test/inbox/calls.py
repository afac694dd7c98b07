#!/usr/bin/env python3
"""Runs test_calls with a migrated database."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../sql"))
from sqltest import migrated, url

migrated()
os.execve(sys.argv[1], sys.argv[1:], dict(os.environ, ONCE_TEST_URL=url("test")))
