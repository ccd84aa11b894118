"""``python -m bench.gpu``; its options are in ``__init__.py``, because callers without ``-m`` give them too."""

import sys

from bench.gpu import main

if __name__ == "__main__":
    sys.exit(main())
