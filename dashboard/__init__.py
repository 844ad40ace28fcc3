"""The pages: a verdict first, then what to do, then the evidence."""
