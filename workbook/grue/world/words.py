"""The lexicon: about 300 words of English and of a toy German, and what goes with what.

Everything is in lower case, German nouns too. Nouns whose German declines beyond its article (der Junge, den Jungen)
and verbs that want the dative or "sein" are left out, so the German needs gender, case and contraction, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    """A common noun. german: the word; gender: m, f or n; kind: what verbs and adjectives ask for."""

    word: str
    german: str
    gender: str
    kind: str


@dataclass(frozen=True)
class Verb:
    """A verb with an object. agents, objects: kinds of noun; places: where it is done; german: the participle."""

    base: str
    past: str
    ing: str
    participle: str
    german: str
    agents: frozenset[str]
    objects: frozenset[str]
    places: frozenset[str]


@dataclass(frozen=True)
class Place:
    """A place; english: its preposition (in, at); preposition, german, gender: the same in German."""

    word: str
    english: str
    preposition: str
    german: str
    gender: str


NAMES = tuple("emma anna clara julia nora sofia laura ben paul felix oscar leo david max".split())
DAYS = {
    "monday": "montag",
    "tuesday": "dienstag",
    "wednesday": "mittwoch",
    "thursday": "donnerstag",
    "friday": "freitag",
    "saturday": "samstag",
    "sunday": "sonntag",
}
_NOUNS = """
person: teacher lehrer m, girl mädchen n, child kind n, doctor ärztin f, baker bäcker m, farmer bäuerin f,
    singer sängerin f, painter maler m, woman frau f, judge richter m
animal: dog hund m, cat katze f, horse pferd n, bird vogel m
opening: door tür f, window fenster n
container: box kiste f, bag tasche f
furniture: table tisch m, chair stuhl m
vehicle: car auto n, bike fahrrad n, boat boot n
food: apple apfel m, egg ei n, soup suppe f, potato kartoffel f, cake kuchen m, fish fisch m
paper: book buch n, letter brief m, map karte f
thing: ball ball m, key schlüssel m, cup tasse f, lamp lampe f, coat mantel m, clock uhr f
"""
_PLACES = """
garden in in garten m, park in in park m, kitchen in in küche f, library in in bibliothek f, lake at an see m,
school at an schule f, museum in in museum n, market at auf markt m, station at an bahnhof m, beach at an strand m,
house in in haus n, forest in in wald m
"""
# base past -ing participle german | who | what | where
_VERBS = """
open opened opening opened geöffnet | person | opening container | house school kitchen library museum station
carry carried carrying carried getragen | person animal | container food paper thing | garden park market station beach
paint painted painting painted bemalt | person | furniture vehicle opening | garden house school museum
clean cleaned cleaning cleaned geputzt | person | furniture vehicle opening thing | kitchen house school station
cook cooked cooking cooked gekocht | person | food | kitchen house garden beach school
eat ate eating eaten gegessen | person animal | food | kitchen garden park lake market
borrow borrowed borrowing borrowed geliehen | person | paper vehicle thing | library school station house
buy bought buying bought gekauft | person | food thing furniture vehicle | market station museum
sell sold selling sold verkauft | person | food thing vehicle paper | market station lake
find found finding found gefunden | person animal | food thing paper animal | garden park beach forest lake
hide hid hiding hidden versteckt | person animal | food thing paper container | garden house forest school
break broke breaking broken zerbrochen | person animal | opening thing furniture | house kitchen school museum
repair repaired repairing repaired repariert | person | vehicle furniture opening thing | house station lake school
draw drew drawing drawn gezeichnet | person | animal vehicle | school park museum beach
chase chased chasing chased gejagt | person animal | animal | garden park forest beach
meet met meeting met getroffen | person | person | park station market library museum
wash washed washing washed gewaschen | person | food vehicle animal container | kitchen house lake garden
lose lost losing lost verloren | person | thing paper container | park station beach market forest
"""
_THINGS = "opening container furniture vehicle thing"
_ADJECTIVES = f"""
red rot | {_THINGS} paper food
green grün | {_THINGS} paper food
old alt | {_THINGS} paper animal
new neu | {_THINGS} paper
small klein | {_THINGS} paper food animal
heavy schwer | {_THINGS}
"""


def _nouns() -> dict[str, Noun]:
    found = {}
    for line in _NOUNS.replace(",\n", ",").strip().splitlines():
        kind, words = line.split(":")
        found |= {part.split()[0]: Noun(*part.split(), kind) for part in words.split(",")}
    return found


def _verbs() -> dict[str, Verb]:
    found = {}
    for line in _VERBS.strip().splitlines():
        forms, *sets = line.split("|")
        found[forms.split()[0]] = Verb(*forms.split(), *(frozenset(part.split()) for part in sets))
    return found


NOUNS = _nouns()
VERBS = _verbs()
PLACES = {part.split()[0]: Place(*part.split()) for part in _PLACES.replace("\n", " ").split(",")}
ADJECTIVES = {line.split()[0]: line.split()[1] for line in _ADJECTIVES.strip().splitlines()}
GOES_WITH = {line.split()[0]: frozenset(line.split("|")[1].split()) for line in _ADJECTIVES.strip().splitlines()}
PEOPLE = tuple(word for word, noun in NOUNS.items() if noun.kind == "person")
ACTORS = tuple(word for word, noun in NOUNS.items() if noun.kind in ("person", "animal"))


def kind_of(word: str) -> str:
    """The kind of a noun or a name; "" for anything else."""
    return "person" if word in NAMES else NOUNS[word].kind if word in NOUNS else ""
