"""What the committed tables of all profiles say together: descriptive, no word of the ledger is taken from it."""
