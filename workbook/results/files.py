"""The committed tables of a profile, in reports/<profile>."""

PER_SEED, CURVES, CONDITIONS, FACTS = "per_seed.csv", "curves.csv", "conditions.json", "facts.json"
SAMPLES, EPISODES = "samples.jsonl", "episodes.json"
DRAWS = "draws.csv.xz"  # of a registered design, in the place of the others
REGISTERED = "registered.json"  # in reports: the words of registered designs
LEARNING_CURVES, METRICS = "learning_curves.csv", "metrics.json"  # for DVC's plot and its comparison of versions
