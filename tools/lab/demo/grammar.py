"""A grammar of small stories with a memory.

A story has a cast, facts that are stated once, and episodes in which an event has a cause. Facts recur at any later distance: in
scenes that depend on them, and as questions at the end. A longer context predicts more, which a perplexity-by-context curve
should show.
"""
import random
from dataclasses import dataclass

import words as w


@dataclass
class Person:
    name: str
    she: bool
    kind: str  # "girl", "boy", or an animal

    @property
    def he(self): return "she" if self.she else "he"
    @property
    def He(self): return self.he.capitalize()
    @property
    def his(self): return "her" if self.she else "his"
    @property
    def His(self): return self.his.capitalize()
    @property
    def him(self): return "her" if self.she else "him"


@dataclass
class Fact:
    """A fact, stated once (`stated`), used again in a scene, and queried at the end."""
    stated: str
    scene: str
    question: str
    answer: str


def article(noun_phrase):
    return ("an " if noun_phrase[0] in "aeiou" else "a ") + noun_phrase


def cap(text):
    return text[0].upper() + text[1:]


class Story:
    def __init__(self, rng: random.Random):
        self.rng = rng
        self.used_names = set()
        self.used_objects = set()
        animal_world = rng.random() < 0.2
        self.hero = self.person(animal_world)
        self.friend = self.person(animal_world)
        self.other = self.person(animal_world)
        self.elder = rng.choice(w.GROWN_UPS)
        elder_she = w.GROWN_UP_IS_SHE[self.elder]
        self.elder_he = "she" if elder_she else "he"
        self.home = rng.choice(w.ANIMAL_HOMES if animal_world else w.HOMES)
        self.animal_world = animal_world
        self.place = rng.choice(w.PLACES)

    # --- choosing ---
    def pick(self, *options):
        return self.rng.choice(options)

    def person(self, animal):
        she = self.rng.random() < 0.5
        names = [n for n in (w.GIRLS if she else w.BOYS) if n not in self.used_names]
        name = self.rng.choice(names)
        self.used_names.add(name)
        kind = self.rng.choice(w.HERO_ANIMALS) if animal else ("girl" if she else "boy")
        return Person(name, she, kind)

    def thing(self):
        """An object that no other sentence of this story names, so facts stay unambiguous."""
        while True:
            phrase = f"{self.rng.choice(w.COLORS)} {self.rng.choice(w.OBJECTS)}"
            if phrase not in self.used_objects:
                self.used_objects.add(phrase)
                return phrase

    def anyone(self):
        return self.rng.choice([self.hero, self.friend, self.other])

    def anyone_but(self, person):
        return self.rng.choice([p for p in (self.hero, self.friend, self.other) if p is not person])

    def good(self): return self.rng.choice(w.MOODS_GOOD)
    def bad(self, why): return self.rng.choice(w.MOODS_BAD[why])
    def time(self): return self.rng.choice(w.DISTANT_TIMES)

    # --- facts ---
    def fact(self):
        makers = [self.fact_hidden, self.fact_hidden, self.fact_favorite, self.fact_pet,
                  self.fact_number, self.fact_number, self.fact_promise, self.fact_fear,
                  self.fact_door, self.fact_event, self.fact_wish]
        return self.rng.choice(makers)()

    def fact_hidden(self):
        p, thing, where = self.anyone(), self.thing(), self.rng.choice(w.HIDING_PLACES)
        return Fact(
            self.pick(f"{p.name} hid the {thing} {where}.",
                      f"{p.name} put the {thing} {where} and told no one.",
                      f"{p.name} kept {article(thing)} {where}."),
            self.pick(f"{p.name} needed the {thing}. {p.He} looked {where}, and there it was.",
                      f'"Where is the {thing}?" asked {self.elder}. "It is {where}," said {p.name}.',
                      f"{p.name} wanted to show the {thing} to everyone, so {p.he} went and found it {where}."),
            f"Where was the {thing}?", f"It was {where}.")

    def fact_favorite(self):
        p, food = self.anyone(), self.rng.choice(w.FOODS)
        return Fact(
            self.pick(f"{p.name} loved {food} more than any other food.",
                      f"{p.name} liked to eat {food} best of all."),
            self.pick(f'"What do you want to eat, {p.name}?" asked {self.elder}. "{cap(food)}, please," said {p.name}.',
                      f"{self.elder} made {food} for {p.name}, because {self.elder_he} knew that {p.he} loved it."),
            f"What did {p.name} like to eat?", f"{p.name} liked {food}.")

    def fact_pet(self):
        p, kind, name = self.anyone(), self.rng.choice(w.PETS), self.rng.choice(w.PET_NAMES)
        return Fact(
            self.pick(f"{p.name} had a {kind} named {name}.",
                      f"A {kind} named {name} lived with {p.name}."),
            self.pick(f"{p.name} called the {kind}. \"Come here, {name}!\" {p.he} said. {name} came at once.",
                      f"{name} the {kind} was hungry, so {p.name} gave {name} some food.",
                      f"{name} ran ahead, and {p.name} laughed at the funny {kind}."),
            f"What was the name of the {kind}?", f"The {kind} was named {name}.")

    def fact_number(self):
        p, thing = self.anyone(), f"{self.rng.choice(w.COLORS)} {self.pick('box', 'chest', 'door', 'gate', 'safe')}"
        number = self.rng.randrange(10 ** self.rng.randint(1, 4), 100000)
        return Fact(
            self.pick(f"The secret number of the {thing} was {number}.",
                      f"{p.name} learned that {number} was the secret number of the {thing}."),
            self.pick(f"{p.name} stood in front of the {thing}. {p.He} said the secret number, {number}, and it opened.",
                      f'"I know the secret number of the {thing}," said {p.name}. "It is {number}."'),
            f"What was the secret number of the {thing}?", f"It was {number}.")

    def fact_promise(self):
        p, thing = self.pick(self.hero, self.other), self.thing()
        to = self.friend
        return Fact(
            self.pick(f"{p.name} promised to give {to.name} {article(thing)}.",
                      f'"I will bring you {article(thing)}," {p.name} promised {to.name}.'),
            self.pick(f"{p.name} kept {p.his} promise and gave {to.name} the {thing}.",
                      f"{p.name} did not forget {p.his} promise. {p.He} came to {to.name} with {article(thing)}. {to.name} was {self.good()}."),
            f"What did {p.name} promise to {to.name}?", f"{p.name} promised {article(thing)}.")

    def fact_fear(self):
        p, fear = self.anyone(), self.rng.choice(w.FEARS)
        return Fact(
            f"{p.name} was afraid of {fear}.",
            self.pick(f"{p.name} did not want to go on, because {p.he} was afraid of {fear}. {self.elder} took {p.his} hand.",
                      f'"Are you still afraid of {fear}?" asked {self.elder}. "Only a little," said {p.name}.'),
            f"What was {p.name} afraid of?", f"{p.name} was afraid of {fear}.")

    def fact_door(self):
        p, color, place = self.anyone(), self.rng.choice(w.COLORS), self.rng.choice(w.PLACES)
        return Fact(
            f"{p.name}'s uncle lived near {place} in a house with {article(color)} door.",
            self.pick(f"They went to see {p.name}'s uncle near {place} and knocked on the {color} door.",
                      f"{p.name}'s uncle opened the {color} door of his house near {place} and gave them warm tea."),
            f"What color was the door of {p.name}'s uncle?", f"It was {color}.")

    def fact_event(self):
        event, day = self.rng.choice(w.EVENTS), self.rng.choice(w.DAYS)
        return Fact(
            self.pick(f"The {event} was going to be on {day}.",
                      f'"The {event} is on {day}," said {self.elder}.'),
            self.pick(f"At last it was {day}, the day of the {event}. Everyone was {self.good()}.",
                      f'"When is the {event}?" asked {self.friend.name}. "On {day}," said {self.hero.name}.'),
            f"On what day was the {event}?", f"It was on {day}.")

    def fact_wish(self):
        p, thing = self.anyone(), self.thing()
        return Fact(
            f"More than anything, {p.name} wished for {article(thing)}.",
            self.pick(f"{self.elder} gave {p.name} {article(thing)}. It was just what {p.he} had wished for.",
                      f"In a shop {p.name} saw {article(thing)}. \"That is what I wish for!\" {p.he} said."),
            f"What did {p.name} wish for?", f"{p.name} wished for {article(thing)}.")

    # --- the frame of a story ---
    def opening(self):
        h, f = self.hero, self.friend
        size = self.pick("little", "young", "small", f"{self.rng.choice(w.TRAITS)}")
        once = self.pick("Once upon a time,", "Once upon a time,", "Once upon a time,",
                         "One day,", "Long ago,", "Many years ago,")
        who = self.pick(f"{once} there was {article(size)} {h.kind} named {h.name}.",
                        f"{once} {article(size)} {h.kind} named {h.name} lived {self.home}.",
                        f"{once} there lived {article(size)} {h.kind}. {h.His} name was {h.name}.")
        parts = [who]
        if "lived " + self.home not in who:
            parts.append(self.pick(f"{h.name} lived {self.home}.", f"{h.He} lived {self.home} with {h.his} {self.elder.lower()}."))
        parts.append(self.pick(f"{h.name} was very {self.rng.choice(w.TRAITS)}.",
                               f"{h.He} liked to play {self.rng.choice(w.GAMES)} at {self.place}.",
                               f"Every day {h.he} went to {self.place} to play."))
        parts.append(self.pick(f"{h.His} best friend was {article(f.kind)} named {f.name}.",
                               f"{h.name} had a good friend, {article(f.kind)} named {f.name}."))
        o = self.other
        parts.append(self.pick(f"{o.name}, {article(o.kind)} who lived near {self.rng.choice(w.PLACES)}, often came to play too.",
                               f"They also knew {article(self.rng.choice(w.TRAITS))} {o.kind} named {o.name}."))
        return " ".join(parts)

    def ending(self):
        h, f = self.hero, self.friend
        return self.pick(
            f"{h.name} and {f.name} went home. They were tired but {self.good()}. From that day on, they knew that {self.rng.choice(w.LESSONS)}.",
            f"In the evening {h.name} told {self.elder} everything. {self.elder} smiled and said, \"You see, {self.rng.choice(w.LESSONS)}.\"",
            f"{h.name} went to bed and slept well. {h.He} had learned that {self.rng.choice(w.LESSONS)}. The end.",
            f"And so {h.name} and {f.name} lived happily ever after.",
            f"{h.name}, {f.name} and {self.other.name} stayed friends for a long, long time.")

    def quiz(self, facts):
        lines = [f"{f.question} {f.answer}" for f in facts]
        self.rng.shuffle(lines)
        return "\n".join(lines) if self.rng.random() < 0.5 else " ".join(lines)


def tell(rng, target_words):
    """One story of about `target_words` words: facts at the start or on the way, recalled later."""
    from episodes import EPISODES  # imported late: episodes use Story's helpers
    story = Story(rng)
    paragraphs = [story.opening()]
    pending, told, asked = [], [], set()
    length = len(paragraphs[0].split())
    used = []
    while length < target_words:
        fresh = [e for e in EPISODES if e not in used[-6:]]
        episode = rng.choice(fresh)
        used.append(episode)
        text = episode(story)
        # Introduces a fact before the episode and recalls an old one after it.
        if rng.random() < 0.7:
            fact = story.fact()
            if fact.question not in asked:
                asked.add(fact.question)
                pending.append(fact)
                told.append(fact)
                text = fact.stated + " " + text
        if pending and rng.random() < 0.5:
            old = pending.pop(rng.randrange(len(pending)))
            text = text + " " + old.scene
        paragraphs.append(text)
        length += len(text.split())
    paragraphs.append(story.ending())
    if told and rng.random() < 0.6:
        paragraphs.append(story.quiz(rng.sample(told, min(len(told), rng.randint(1, 5)))))
    return "\n".join(paragraphs)
