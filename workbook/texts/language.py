"""The language of the generated reviews: its words, its genres, and the templates that say what is a clause.

A genre ties its roles, objects, places and verbs. A clause is one of a fixed list of templates of fixed length, each
position a set of words, so that whether a clause is grammatical, and what it says, is decided exactly. Words are lower
case.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

GENRES = {
    "heist": {
        "ROLE": "thief safecracker fence getaway hacker forger croupier banker lookout",
        "OBJECT": "diamond vault blueprint necklace painting ledger keycard briefcase crowbar",
        "PLACE": "casino museum penthouse garage basement elevator auction rooftop",
        "VERBS": "steals cracks copies swaps cases unlocks pawns smuggles",
    },
    "western": {
        "ROLE": "sheriff outlaw rancher gunslinger barkeep prospector deputy drifter preacher",
        "OBJECT": "saddle lasso revolver horseshoe wagon whiskey telegraph branding badge",
        "PLACE": "saloon canyon prairie corral gulch stockyard mesa homestead",
        "VERBS": "draws ropes rustles polishes trades gambles brands reloads",
    },
    "space": {
        "ROLE": "astronaut android pilot navigator cosmonaut botanist commander stowaway engineer",
        "OBJECT": "rocket beacon airlock satellite capsule antenna reactor telescope probe",
        "PLACE": "station crater moonbase hangar orbit greenhouse wormhole cockpit",
        "VERBS": "repairs launches docks scans reboots jettisons steers welds",
    },
    "romance": {
        "ROLE": "florist baker bride widower pianist poet waitress librarian suitor",
        "OBJECT": "letter bouquet ring umbrella scarf locket diary cake postcard",
        "PLACE": "cafe bakery orchard ballroom bookshop seaside balcony vineyard",
        "VERBS": "kisses misses writes delivers bakes mends photographs unwraps",
    },
    "ghost": {
        "ROLE": "medium exorcist caretaker phantom orphan governess gravedigger seer butler",
        "OBJECT": "candle coffin mirror doll amulet lantern portrait skull relic",
        "PLACE": "attic cellar crypt graveyard mansion chapel asylum nursery",
        "VERBS": "haunts summons buries curses whispers exhumes banishes lights",
    },
    "war": {
        "ROLE": "soldier sergeant medic sniper general nurse spy recruit bugler",
        "OBJECT": "rifle helmet grenade map radio bandage medal bayonet flag",
        "PLACE": "trench bunker barracks battlefield beachhead infirmary village checkpoint",
        "VERBS": "guards defends salutes bombs decodes loads surrenders camouflages",
    },
    "courtroom": {
        "ROLE": "lawyer judge juror witness prosecutor bailiff defendant clerk stenographer",
        "OBJECT": "verdict evidence gavel affidavit contract subpoena alibi transcript confession",
        "PLACE": "courthouse jail office archive lobby chambers precinct hallway",
        "VERBS": "cites disputes forges presents questions shreds signs subverts",
    },
    "pirate": {
        "ROLE": "captain buccaneer sailor mermaid gunner castaway admiral parrot shipwright",
        "OBJECT": "treasure cutlass compass anchor cannon barrel sextant doubloon hammock",
        "PLACE": "harbor island lagoon galleon reef tavern lighthouse shipyard",
        "VERBS": "plunders hoists sinks boards maroons salvages sails fires",
    },
}

WORDS = {  # GOOD... and BAD... are the two sides of a signed slot
    "NAME": "anna boris carla diego elena felix greta hugo irene jonas karin luca marta nils olga pablo rosa stefan "
    "tessa umberto vera walter xenia yusuf zora amir bianca casper dalia emil fiona goran helga ivan judith "
    "kofi leila milo nadia oskar petra quentin rita samir tilda ugo viola wanda yara zeno agnes bruno celia "
    "dario edith farid gloria hector ines jakob kasia lorenzo mina nestor odile pascal ramona silas theo "
    "ursula viktor wilma yvonne zelda arlo berta cosmo dina ezra flora gideon hana igor julia kurt lydia marek "
    "noor otto paula ravi sonja tomas ulla vince willa yoko abel britt clara denzel",
    "DIRECTOR": "okafor lindqvist moreau tanaka petrov alvarez kowalski bianchi haddad novak osei fischer larsen mehta "
    "duarte sato romano weiss kimura laurent varga iversen castillo banerjee doyle eriksen fontaine gallo "
    "horvat jansen keller lombardi mbeki nakata oyelaran prakash quiroga rossi",
    "GOOD": "brilliant superb wonderful delightful charming gripping moving witty clever fresh elegant tender radiant "
    "dazzling thrilling inspired flawless graceful vivid honest warm daring inventive memorable stunning "
    "lovely masterful poignant lively sharp magnetic soulful refreshing luminous captivating hilarious "
    "splendid sublime riveting nuanced",
    "BAD": "awful terrible dull boring tedious clumsy wooden bland shallow lifeless predictable messy lazy stale "
    "hollow grating cheap silly pointless sloppy forgettable annoying dreary horrible flat muddled tiresome "
    "stiff ugly weak painful dismal insipid contrived plodding tasteless pathetic dreadful sluggish incoherent",
    "GOODLIKED": "loved enjoyed adored admired liked cherished appreciated relished",
    "BADLIKED": "hated disliked loathed despised endured resented detested regretted",
    "GOODLIKE": "love enjoy adore admire like cherish appreciate relish",
    "BADLIKE": "hate dislike loathe despise resent detest regret mind",
    "GOODLIFTED": "lifted elevated saved enriched carried sharpened warmed brightened",
    "BADLIFTED": "ruined spoiled weakened sank dragged wrecked cheapened smothered",
    "GOODVERDICT": "recommend rewatch treasure buy praise keep applaud",
    "BADVERDICT": "avoid skip forget refund mock return boo",
    "ASPECT": "acting plot score dialogue pacing ending script camera lighting editing humor casting soundtrack "
    "opening story costumes chemistry twist suspense finale direction music premise tone rhythm choreography animation "
    "narration makeup stunts climax subplot atmosphere wardrobe banter montage framing romance drama mood",
    "FILM": "film movie picture feature debut sequel remake thriller",
    "DEGREE": "very so truly really quite deeply utterly rather remarkably fairly",
    "REALLY": "really truly deeply honestly simply certainly",
    "NOT": "not never",
    "TIME": "night morning winter summer evening autumn dawn weekend",
    "SEASON": "spring january march april may june july august october november december",
    "LOOK": "old hidden silver broken golden rusty secret stolen curious heavy tiny ancient missing crimson borrowed "
    "cracked wrapped painted narrow empty quiet frozen dusty blue green black white enormous spare second",
    "FRIENDS": "everyone friends families students parents neighbors anyone colleagues",
}

# Clauses. Capitals are slots; ADJ, LIKED, LIKE, LIFTED and VERDICT are signed: each line stands for two templates.
PLOT = """
NAME plays the ROLE
the ROLE VERBS the OBJECT
the ROLE VERBS the LOOK OBJECT in the PLACE
the FILM opens in the PLACE
DIRECTOR directed it in SEASON
NAME and NAME meet at the PLACE
one TIME the ROLE leaves the PLACE
it follows one ROLE and one OBJECT
NAME hides the LOOK OBJECT
NAME VERBS the OBJECT for the ROLE
this is one GENRE FILM by DIRECTOR
"""
OPINION = """
the ASPECT is ADJ
the ASPECT is ADJ
the ASPECT was DEGREE ADJ
NAME is ADJ as the ROLE
NAME gives one ADJ performance
i LIKED the ASPECT
i REALLY LIKED the ASPECT
the ASPECT LIFTED the FILM
DIRECTOR made one ADJ FILM
it is one ADJ GENRE FILM
the PLACE scenes are ADJ
the ROLE felt ADJ to me
the ASPECT and the ASPECT are ADJ
"""
NEGATION = """
the ASPECT is NOT ADJ
the ASPECT is NOT ADJ
the ASPECT was NOT DEGREE ADJ
i did not LIKE the ASPECT
i never LIKED the ASPECT
NAME is NOT ADJ as the ROLE
the ROLE never felt ADJ to me
the ASPECT never LIFTED the FILM
"""
VERDICTS = """
i would VERDICT it
VERDICT this FILM
tell FRIENDS to VERDICT it
"""
NOT_VERDICTS = """
i would NOT VERDICT it
"""
SIGNED = ("ADJ", "LIKED", "LIKE", "LIFTED", "VERDICT")


@dataclass(frozen=True)
class Template:
    """slots: one word or slot name a position; polarity: what the clause says, +1, 0 (plot) or -1."""

    slots: tuple[str, ...]
    polarity: int


def _templates(lines: str, sign: int) -> list[Template]:
    """The templates of a block of lines that say ``sign`` (0: no signed slot in them)."""
    templates = []
    for line in lines.split("\n")[1:-1]:
        slots = line.split()
        flipped = any(slot in ("NOT", "not", "never") for slot in slots)
        side = "GOOD" if (sign > 0) != flipped else "BAD"
        templates.append(Template(tuple(_sided(slot, side) for slot in slots), sign))
    return templates


def _sided(slot: str, side: str) -> str:
    if slot not in SIGNED:
        return slot
    return side if slot == "ADJ" else side + slot


KINDS = {("plot", 0): _templates(PLOT, 0)}
for _sign in (1, -1):
    KINDS["opinion", _sign] = _templates(OPINION, _sign)
    KINDS["negation", _sign] = _templates(NEGATION, _sign)
    KINDS["verdict", _sign] = _templates(VERDICTS, _sign)
    KINDS["not verdict", _sign] = _templates(NOT_VERDICTS, _sign)


def slot_words(slot: str) -> tuple[str, ...]:
    """The words a template position takes: of all genres for ROLE, OBJECT, PLACE, VERBS; the word itself otherwise."""
    if slot == "GENRE":
        return tuple(GENRES)
    if slot in WORDS:
        return tuple(WORDS[slot].split())
    if slot in ("ROLE", "OBJECT", "PLACE", "VERBS"):
        return tuple(word for genre in GENRES.values() for word in genre[slot].split())
    return (slot,)


@lru_cache(maxsize=1)
def vocabulary() -> tuple[str, ...]:
    """Every word a review can hold, '.' and 'but' included, sorted. Fixed: it does not depend on the draw."""
    words = {".", "but"}
    for templates in KINDS.values():
        words.update(word for template in templates for slot in template.slots for word in slot_words(slot))
    return tuple(sorted(words))
