"""The app: a page in the browser on which a sentence is certified while one looks.

The page and its server are one process that never loads PyTorch; questions are answered in processes of their own,
which can be stopped (`worker.py`), from a line in which visitors take turns (`line.py`). Needs the extra `app`.
"""

from .serving import Serving

__all__ = ["Serving"]
