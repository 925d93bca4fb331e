"""Episodes: small scenes in which one thing leads to another. Each takes a Story, returns a paragraph."""
import words as w
from grammar import article, cap


def lost_thing(s):
    p, q, thing = s.hero, s.anyone_but(s.hero), s.thing()
    first, second = s.rng.sample(w.PLACES, 2)
    where = s.rng.choice(w.HIDING_PLACES)
    return (f"{s.time()}, {p.name} could not find {p.his} {thing}. {p.He} was {s.bad('loss')}. "
            f"{p.He} looked at {first}, but it was not there. {p.He} looked at {second}, but it was not there. "
            + s.pick(f"Then {q.name} called, \"I found it {where}!\" ",
                     f"\"Did you look {where}?\" asked {q.name}. {p.name} ran there and found it. ")
            + f"{p.name} hugged {q.name} and said, \"Thank you for finding my {thing.split()[-1]}!\"")


def sudden_rain(s):
    p, q = s.hero, s.friend
    shelter = s.pick("an old barn", "a big tree", "a small cave", "the bridge", "a wooden roof")
    return (f"{s.time()}, {p.name} and {q.name} walked to {s.rng.choice(w.PLACES)}. "
            + s.pick("Dark clouds came, and it began to rain.", "All at once it started to rain.")
            + f" They got wet, so they ran to {shelter} and waited. "
            + s.pick(f"When the rain stopped, they saw a rainbow. \"Look how pretty it is!\" said {q.name}.",
                     f"{q.name} sang a song until the sun came back. Then they jumped in the puddles.",
                     f"It was cold, so {p.name} gave {q.name} {p.his} coat. \"You are kind,\" said {q.name}."))


def hungry(s):
    p, q, food = s.hero, s.anyone_but(s.hero), s.rng.choice(w.FOODS)
    return (f"{s.time()}, {p.name} was hungry. {p.He} asked {s.elder} for something to eat. "
            f"{s.elder} gave {p.him} {food}. "
            + s.pick(f"But {q.name} had nothing to eat and looked {s.bad('loss')}. So {p.name} shared the {food} with {q.name}. Now they were both {s.good()}.",
                     f"{p.name} ate all of it. \"That was good!\" {p.he} said, and washed {p.his} plate.",
                     f"The {food} was too hot, so {p.name} waited until it was cool. Then {p.he} ate it with {q.name}."))


def stuck_animal(s):
    p, q, animal = s.hero, s.anyone_but(s.hero), s.rng.choice(w.WILD)
    trap, tool = s.pick(("in a deep hole", "a rope"), ("in the mud", "a long stick"),
                        ("under a fallen branch", "a strong pole"), ("in an old net", "a pair of scissors"),
                        ("on a thin branch", "a ladder"))
    return (f"{s.time()}, {p.name} heard a cry near {s.rng.choice(w.PLACES)}. {cap(article(animal))} was stuck {trap}. "
            f"\"Please help me!\" said the {animal}. {p.name} could not do it alone, so {p.he} ran to get {q.name}. "
            f"{q.name} brought {tool}, and together they set the {animal} free. "
            + s.pick(f"\"Thank you,\" said the {animal}. \"I will never forget you.\"",
                     f"The {animal} was {s.good()} and gave them {article(s.thing())}.",
                     f"The {animal} ran home to its family, and {p.name} waved goodbye."))


def broken_toy(s):
    p, q, thing = s.hero, s.friend, s.thing()
    noun = thing.split()[-1]
    return (f"{s.time()}, {p.name} was playing with {article(thing)}. {p.He} "
            + s.pick("ran too fast and fell", "did not look where it went", "held it with one hand only")
            + f", and the {noun} broke. {p.name} began to cry. "
            + s.pick(f"\"Do not cry,\" said {s.elder}. \"We can fix it with glue.\" After an hour the {noun} was as good as new.",
                     f"{q.name} sat down next to {p.him}. \"I can fix it,\" said {q.name}, and so it was. {p.name} was {s.good()} again.",
                     f"It was not {p.his} {noun}. It belonged to {q.name}. {p.name} told the truth and said sorry, and {q.name} was not angry."))


def make_something(s):
    p, q = s.hero, s.anyone_but(s.hero)
    what = s.rng.choice(sorted(w.MATERIALS))
    parts = w.MATERIALS[what]
    missing = s.rng.choice(parts)
    have = [x for x in parts if x != missing]
    return (f"{s.time()}, {p.name} and {q.name} wanted to make a {what}. They had {have[0]}, {have[1]} and {have[2]}, "
            f"but they had no {missing.replace('a ', '', 1) if missing.startswith('a ') else missing}. "
            f"So {q.name} went to {s.rng.choice(w.PLACES)} and came back with {missing}. "
            + s.pick(f"They worked until evening. The {what} was the best one they had ever made.",
                     f"First it went wrong, but they tried again. In the end they had a fine {what}.",
                     f"\"Look at our {what}!\" said {p.name}. {s.elder} was very proud of them."))


def quarrel(s):
    p, q, thing = s.hero, s.friend, s.thing()
    return (f"{s.time()}, {p.name} and {q.name} found {article(thing)}. \"It is mine!\" said {p.name}. "
            f"\"No, I saw it first!\" said {q.name}. They pulled and pulled, and both were {s.bad('anger')}. "
            + s.pick(f"Then {p.name} stopped. \"I am sorry,\" {p.he} said. \"You can have it today, and I can have it tomorrow.\" {q.name} smiled.",
                     f"{s.elder} came and said, \"Why do you not share it?\" So they played with the {thing} together.",
                     f"{s.other.name} said, \"It belongs to the old man at {s.rng.choice(w.PLACES)}.\" So they brought it back, and the old man thanked them."))


def trade(s):
    p, animal, give, get = s.hero, s.rng.choice(w.WILD), s.thing(), s.thing()
    return (f"{s.time()}, {p.name} met {article(animal)} on the road. The {animal} had {article(get)}. "
            f"\"May I have the {get}?\" asked {p.name}. \"What will you give me for it?\" said the {animal}. "
            f"{p.name} had {article(give)}, so {p.he} gave it to the {animal} and got the {get}. "
            + s.pick("They were both happy with the trade.", f"The {animal} put the {give} on its head and danced.",
                     f"\"It is a good trade,\" said the {animal}, and it went away with the {give}."))


def lost_way(s):
    p, q = s.hero, s.friend
    light = s.pick("a small light", "the smoke of a fire", "the sound of a bell", "an owl in a tree")
    return (f"{s.time()}, {p.name} and {q.name} went too far into the forest and lost their way. "
            f"It got dark, and {q.name} was {s.bad('fear')}. \"Do not worry,\" said {p.name}. \"We will find the way.\" "
            f"Then {p.he} saw {light}. "
            .replace("saw the sound", "heard the sound")
            + s.pick(f"They followed it, and it led them home. {s.elder} was waiting at the door.",
                     f"They went there and met a kind old woman. She gave them {s.rng.choice(w.FOODS)} and showed them the way home."))


def garden(s):
    p, q = s.hero, s.anyone_but(s.hero)
    seed, plant = s.pick(("a small seed", "a tall flower"), ("three beans", "long green beans"),
                         ("an apple seed", "a little apple tree"), ("a brown bulb", "a red tulip"))
    return (f"{s.time()}, {p.name} planted {seed} in the garden. {q.name} said, \"It will never grow.\" "
            f"But {p.name} gave it water every day. "
            + s.pick("First nothing happened.", "The sun was warm, and the rain was soft.", "Many days went by.")
            + f" Then one morning there was {plant}. "
            .replace("was long green beans", "were long green beans")
            + s.pick(f"\"You were right,\" said {q.name}. \"I was wrong.\"", f"{p.name} was {s.good()}, because {p.he} had been patient."))


def sick_friend(s):
    p, q, food = s.hero, s.friend, s.rng.choice(w.FOODS)
    return (f"{s.time()}, {q.name} did not come to play, because {q.he} was sick and had to stay in bed. {p.name} was {s.bad('alone')}. "
            f"{p.He} took {food} and {article(s.thing())} and went to see {q.name}. "
            + s.pick(f"\"I feel better now,\" said {q.name}. The next day {q.he} could play again.",
                     f"They told each other stories until {q.name} fell asleep. Soon {q.he} was well again."))


def race(s):
    p, q, o = s.hero, s.friend, s.other
    prize = s.thing()
    return (f"{s.time()}, there was a race to {s.rng.choice(w.PLACES)}. The prize was {article(prize)}. {p.name}, {q.name} and {o.name} ran as fast as they could. "
            + s.pick(f"{q.name} fell over a stone and hurt {q.his} knee. {p.name} stopped to help {q.him}, so {o.name} won the {prize}. \"You are a true friend,\" said {q.name}.",
                     f"{o.name} was the fastest and won. But {o.he} gave the {prize} to {p.name}, because {p.he} had never given up.",
                     f"{p.name} won the {prize}, and {q.name} clapped {q.his} hands."))


def windy_hat(s):
    p, q, color = s.hero, s.anyone_but(s.hero), s.rng.choice(w.COLORS)
    place = s.pick("in a tall tree", "on the roof", "in the pond", "on the head of a cow", "in a cart full of hay")
    return (f"{s.time()}, a strong wind took {p.name}'s {color} hat. It flew over the houses and {p.name} ran after it. "
            f"It landed {place}. "
            + s.pick(f"{q.name} laughed and helped {p.him} to get it back.", f"{p.name} could not reach it, so {q.name} lifted {p.him} up.",
                     f"\"My hat likes to travel,\" said {p.name}. {q.name} laughed, and they got it back with a long stick."))


def night_noise(s):
    p, animal = s.hero, s.rng.choice(w.PETS)
    return (f"That night {p.name} heard a strange noise. {p.He} was {s.bad('fear')} and could not sleep. "
            f"{p.He} took a lamp and went slowly down the stairs. "
            + s.pick(f"It was only a {animal} that wanted to come in from the cold. {p.name} laughed and let it in.",
                     f"It was only the wind at the window. {p.name} closed it and went back to bed.",
                     f"It was {s.elder}, who was making {s.rng.choice(w.FOODS)}. They ate a little and went to bed."))


def market(s):
    p, coins, cost = s.hero, s.rng.randint(5, 9), s.rng.randint(2, 4)
    thing = s.thing()
    return (f"{s.time()}, {s.elder} gave {p.name} {coins} coins. {p.name} went to the market and saw {article(thing)}. "
            f"It cost {cost} coins. {p.name} bought it and had {coins - cost} coins left. "
            + s.pick(f"{p.He} gave the {thing} to {s.friend.name}, who was {s.good()}.", f"{p.He} carried the {thing} home and showed it to {s.elder}.",
                     f"With the last {coins - cost} coins {p.he} bought {s.rng.choice(w.FOODS)} for {s.other.name}.".replace("last 1 coins", "last coin")))


def cold_day(s):
    p, q = s.hero, s.friend
    return (f"{s.time()}, it was so cold that the water in the lake turned to ice. {q.name} had no warm "
            + s.pick("coat", "hat", "scarf", "shoes")
            + f" and was shaking. {p.name} took {q.him} home. They made a fire and drank hot milk. "
            + s.pick(f"\"Now I am warm,\" said {q.name}.", "Outside the snow fell, but inside it was warm and quiet.",
                     f"{s.elder} told them a story about {article(s.rng.choice(w.WILD))} who lived on the moon."))


def river_crossing(s):
    p, q = s.hero, s.anyone_but(s.hero)
    return (f"{s.time()}, {p.name} and {q.name} wanted to cross the river, but the bridge was broken. "
            + s.pick(f"{q.name} wanted to swim, but the water was too fast. So they pushed a log over the river and walked across.",
                     f"They found a small boat. {p.name} rowed, and {q.name} looked out for stones.",
                     f"\"Let us ask the beaver,\" said {q.name}. The beaver built a new bridge in one day.")
            + f" On the other side they came to {s.rng.choice(w.PLACES)} and rested.")


def game(s):
    p, q, o, where = s.hero, s.friend, s.other, s.rng.choice(w.HIDING_PLACES)
    first = s.rng.choice([g for g in w.GAMES if g != "hide and seek"])
    return (f"{s.time()}, they played {first} at {s.place}. "
            + s.pick(f"{q.name} was very good at it, and {p.name} wanted to play again and again.",
                     f"Then they played hide and seek. {o.name} hid {where}. {p.name} looked everywhere and found {o.him} there at last.",
                     f"{o.name} did not know the rules, so {p.name} showed {o.him} how to play."))


def visitor(s):
    p, animal, thing = s.hero, s.rng.choice(w.WILD), s.thing()
    return (f"{s.time()}, {article(animal)} came to {p.name}'s house. \"I have lost my {thing},\" said the {animal}. \"Did you see it?\" "
            f"{p.name} thought about it. "
            + s.pick(f"\"I saw it at {s.place},\" {p.he} said. They went to {s.place} and found the {thing}.",
                     f"\"No, but I will help you look for it,\" {p.he} said. They looked all day, and in the end they found it {s.rng.choice(w.HIDING_PLACES)}.")
            + f" The {animal} was {s.good()}.")


def chores(s):
    p, q = s.hero, s.anyone_but(s.hero)
    job = s.pick("clean the kitchen", "feed the hens", "carry the wood", "sweep the floor", "wash the dishes", "pick the apples")
    return (f"{s.time()}, {s.elder} asked {p.name} to {job}. {p.name} wanted to play first. "
            + s.pick(f"But {q.name} said, \"Let us do it together, then it goes faster.\" So they did, and soon they could play.",
                     f"{p.He} forgot it, and {s.elder} was {s.pick('sad', 'upset', 'angry')}. \"I am sorry,\" said {p.name}, and {p.he} did it at once.",
                     f"But {p.he} did it right away. {s.elder} was so pleased that {p.name} got {s.rng.choice(w.FOODS)}."))


EPISODES = [lost_thing, sudden_rain, hungry, stuck_animal, broken_toy, make_something, quarrel, trade,
            lost_way, garden, sick_friend, race, windy_hat, night_noise, market, cold_day,
            river_crossing, game, visitor, chores]
