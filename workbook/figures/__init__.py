"""One style, and the parts that figures are made of."""
