"""Mappings whose values are made, or imported, when their names are looked up."""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def load_place(place: str) -> Any:
    """A module, or an attribute of one, by its place.

    >>> load_place("jaxpt.version"), load_place("jaxpt.by_name:load_place").__name__
    (<module 'jaxpt.version' from ...>, 'load_place')
    """
    module, _, attribute = place.partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


class OnDemand(Mapping[str, T]):
    """A mapping of known names to values that are made when they are looked up.

    Listing the names, or testing whether one is known, makes nothing.

    Args:
      make: gives the value of a name.

    >>> squares = OnDemand(("2", "3"), lambda name: int(name) ** 2)
    >>> list(squares), "5" in squares, squares["3"]
    (['2', '3'], False, 9)
    """

    def __init__(self, names: Iterable[str], make: Callable[[str], T]):
        self.names, self._make = dict.fromkeys(names), make

    def __getitem__(self, name: str) -> T:
        if name not in self.names:
            raise KeyError(name)
        return self._make(name)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


class ByName(OnDemand[T]):
    """A mapping of names to modules, or to attributes of modules.

    Args:
      places: name -> "package.module" or "package.module:attribute".

    >>> found = ByName({"dims": "jaxpt.dims", "Rows": "jaxpt.dims:Rows"})
    >>> list(found), found["dims"].__name__
    (['dims', 'Rows'], 'jaxpt.dims')
    """

    def __init__(self, places: Mapping[str, str]):
        super().__init__(places, lambda name: load_place(places[name]))
