"""Rules of Unicode: emoji, and the characters that a reader sees."""
