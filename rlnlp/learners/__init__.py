"""One file per algorithm; each has the five names ``Config, init, collect, update, train``."""
