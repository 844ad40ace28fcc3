"""One page per file: query, typed context, render."""
