"""The vocabulary of the demo's story language: names, places, objects and reasons."""

GIRLS = """Lily Mia Anna Rosa Ella Nora Ruby Clara Molly Daisy Sara Emma Zoe Hanna Ida Lucy
Mara Tilda Greta Olive Pearl Wilma Yara Vera Nina June""".split()
BOYS = """Tom Ben Max Sam Leo Finn Jack Oscar Tim Paul Hugo Emil Otto Nils Karl Felix
Anton Jonas Milo Theo Rufus Victor Walter Igor Dan Peter""".split()
PET_NAMES = """Pip Biscuit Shadow Pepper Button Muffin Rusty Snow Coco Bubbles Spot Honey
Ginger Fuzzy Lucky Socks Waffle Clover Nutmeg Pickle Tiger Star""".split()
GROWN_UPS = ["Mom", "Dad", "Grandma", "Grandpa"]
GROWN_UP_IS_SHE = {"Mom": True, "Grandma": True, "Dad": False, "Grandpa": False}

PETS = ["dog", "cat", "rabbit", "hen", "goat", "pony", "duck", "mouse", "parrot", "turtle"]
WILD = ["fox", "owl", "bear", "frog", "squirrel", "deer", "hedgehog", "crow", "wolf", "bee",
        "badger", "swan", "beaver", "mole"]
HERO_ANIMALS = ["rabbit", "fox", "bear", "mouse", "duck", "frog", "cat", "dog", "owl", "hedgehog"]

COLORS = ["red", "blue", "green", "yellow", "white", "black", "brown", "pink", "purple",
          "orange", "silver", "golden"]
OBJECTS = ["key", "ball", "book", "hat", "cup", "lamp", "drum", "kite", "spoon", "bell",
           "box", "coin", "ring", "shoe", "scarf", "doll", "boat", "bag", "map", "stone",
           "button", "brush", "flute", "basket", "blanket", "ribbon", "candle", "whistle",
           "mirror", "feather", "shell", "top", "glove", "jar", "puppet", "clock"]
HIDING_PLACES = ["under the bridge", "behind the barn", "in the hollow tree", "under the bed",
                 "in the kitchen drawer", "behind the old clock", "in the well house",
                 "under a flat stone", "in the attic", "behind the mill", "in the tool shed",
                 "under the stairs", "in the boat house", "behind the church", "in the haystack",
                 "under the apple tree", "in the cellar", "on the top shelf", "in the garden wall",
                 "beside the pond", "in the rabbit hole", "under the doormat", "in the flower pot",
                 "behind the bakery"]
PLACES = ["the park", "the forest", "the river", "the lake", "the market", "the farm", "the hill",
          "the school", "the garden", "the beach", "the village", "the meadow", "the mill",
          "the harbor", "the castle", "the library", "the bakery", "the train station"]
HOMES = ["in a small house by the river", "in a little house near the forest",
         "on a farm behind the hill", "in a tall house in the village",
         "in a cottage by the sea", "in a warm house next to the mill",
         "in an old house at the end of the road", "in a white house beside the lake"]
ANIMAL_HOMES = ["in a hole under an old tree", "in the deep forest", "near a quiet pond",
                "in a nest of leaves by the river", "behind a big rock on the hill",
                "at the edge of the meadow"]
FOODS = ["apple pie", "pancakes", "soup", "bread and butter", "cheese", "cherries", "honey cake",
         "noodles", "corn", "strawberries", "rice", "carrots", "plum jam", "nuts", "porridge",
         "pears", "potatoes", "blueberries"]
FEARS = ["the dark", "loud thunder", "deep water", "big spiders", "high places", "the cold wind",
         "strange noises", "the tall stairs"]
GAMES = ["hide and seek", "tag", "catch", "pirates", "kings and queens", "school", "jump rope",
         "marbles"]
TRAITS = ["kind", "brave", "curious", "clever", "shy", "cheerful", "gentle", "funny", "careful",
          "stubborn", "quiet", "lively", "patient", "proud"]
MOODS_GOOD = ["happy", "glad", "proud", "excited", "pleased", "full of joy"]
MOODS_BAD = {"loss": ["sad", "worried", "upset", "very sad"],
             "fear": ["scared", "afraid", "worried", "very scared"],
             "anger": ["angry", "upset", "very angry", "cross"],
             "alone": ["sad", "worried", "lonely"]}
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
EVENTS = ["fair", "party", "race", "picnic", "concert", "school play", "wedding", "harvest feast"]
DISTANT_TIMES = ["The next day", "One morning", "One afternoon", "Later that day", "One evening",
                 "A few days later", "After lunch", "The next morning", "Early one day",
                 "At the end of the week", "Soon after that", "On a quiet day", "On a windy day",
                 "On a gray morning", "On a warm evening"]
LESSONS = ["it is good to share", "friends help each other", "it is best to tell the truth",
           "small ones can be brave too", "you should never give up",
           "a kind word can change the day", "it is wise to ask for help",
           "being patient pays off", "one should keep a promise",
           "it is better to work together"]
MATERIALS = {"cake": ["flour", "eggs", "sugar", "butter"],
             "kite": ["paper", "string", "two thin sticks", "a bit of glue"],
             "soup": ["carrots", "potatoes", "salt", "a big pot of water"],
             "boat": ["a piece of wood", "a white sail", "a nail", "some rope"],
             "bird house": ["a few boards", "nails", "a hammer", "brown paint"],
             "snowman": ["a carrot", "two black stones", "a hat", "a scarf"]}
