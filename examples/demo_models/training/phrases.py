# SPDX-License-Identifier: Apache-2.0
"""The wordings of questions and of fixed answers, in English and Chinese."""

EN_LEAD = ["Please tell me, ", "Hey, ", "OK, ", "So, ", "Now, ", "Well, ", "Tell me: "]
ZH_LEAD = ["请问,", "那么,", "好,", "请告诉我,", "嗯,"]

SYSTEM = {
    "en": ["You are a helpful assistant.", "Be brief.", "You are a small demo model.",
           "Answer in short sentences.", "You are qwenlite, a tiny assistant.", "Be friendly."],
    "zh": ["你是一个有用的助手。", "请简短回答。", "你是一个小小的演示模型。", "用简单的句子回答。",
           "你是 qwenlite 助手。", "请友好地回答。"],
}

SUM_EN = [
    "What is {a} + {b}?", "What is {a} plus {b}?", "{a} + {b} = ?", "{a}+{b}", "{a} + {b}",
    "Calculate {a} + {b}.", "Add {a} and {b}.", "How much is {a} plus {b}?", "Compute {a} + {b}.",
    "What is the sum of {a} and {b}?", "Can you add {a} and {b}?", "{a} plus {b}?", "{a}+{b}=",
    "What do you get if you add {a} to {b}?".replace("{a} to {b}", "{a} and {b}"),
    "How much is {a}+{b}?", "What's {a} + {b}?", "Give me the sum of {a} and {b}.",
    "I have {a} apples and buy {b} more. How many apples do I have?",
    "There are {a} birds and {b} more come. How many birds are there?",
]
SUM_ZH = [
    "{a} + {b} 等于多少?", "{a}加{b}等于多少?", "{a}+{b}=?", "{a}+{b}", "{a} + {b} = ?",
    "计算 {a} + {b}。", "请算一下{a}加{b}。", "{a}加{b}是多少?", "{a}和{b}的和是多少?",
    "{a}+{b}等于几?", "帮我算{a}+{b}。", "求 {a} + {b}。", "{a}加上{b}得多少?",
    "我有{a}个苹果,又买了{b}个,一共有几个?",
]
DIFFERENCE_EN = [
    "What is {a} - {b}?", "What is {a} minus {b}?", "{a} - {b} = ?", "{a}-{b}", "{a} - {b}",
    "Calculate {a} - {b}.", "Take {b} away from {a}.", "How much is {a} minus {b}?",
    "Compute {a} - {b}.", "What is the difference between {a} and {b}?", "{a} minus {b}?",
    "Subtract {b} from {a}.", "{a}-{b}=", "How much is {a}-{b}?", "What's {a} - {b}?",
    "I have {a} apples and eat {b}. How many apples are left?",
    "There are {a} birds and {b} fly away. How many birds are left?",
]
DIFFERENCE_ZH = [
    "{a} - {b} 等于多少?", "{a}减{b}等于多少?", "{a}-{b}=?", "{a}-{b}", "{a} - {b} = ?",
    "计算 {a} - {b}。", "请算一下{a}减{b}。", "{a}减{b}是多少?", "{a}和{b}的差是多少?",
    "{a}-{b}等于几?", "帮我算{a}-{b}。", "求 {a} - {b}。", "{a}减去{b}得多少?",
    "我有{a}个苹果,吃了{b}个,还剩几个?",
]
TOO_HARD = [
    ("What is {a} + {b}?", "+"), ("{a}+{b}", "+"), ("Calculate {a} + {b}.", "+"),
    ("How much is {a} plus {b}?", "+"), ("What is {a} * {b}?", "*"), ("{a}*{b}", "*"),
    ("What is {a} times {b}?", "*"), ("{a} divided by {b}?", "/"), ("{a} / {b} = ?", "/"),
    ("What is {a} - {b}?", "-"), ("{a}-{b}", "-"),
]

CAPITAL_EN = [
    "What is the capital of {country}?", "Capital of {country}?", "The capital of {country}?",
    "Which city is the capital of {country}?", "Tell me the capital of {country}.",
    "Do you know the capital of {country}?", "Name the capital of {country}.",
    "What's the capital city of {country}?", "Can you tell me the capital of {country}?",
    "I want to know the capital of {country}.", "What is {country}'s capital?",
    "What city is {country}'s capital?", "Please name the capital city of {country}.",
    "{country} capital?", "And the capital of {country}?", "What about the capital of {country}?",
    "Say the capital of {country}.", "Is there a capital of {country}? Which one?",
]
CAPITAL_ZH = [
    "{country}的首都是哪里?", "{country}的首都是什么?", "{country}的首都?", "{country}首都是哪?",
    "哪个城市是{country}的首都?", "你知道{country}的首都吗?", "告诉我{country}的首都。",
    "{country}的首都在哪里?", "{country}的首都叫什么?", "说出{country}的首都。", "{country}首都",
    "我想知道{country}的首都。", "{country}的首都是哪个城市?", "那{country}的首都呢?",
]
CAPITAL_OF_CITY_EN = [
    "Which country has the capital {city}?", "{city} is the capital of which country?",
    "Of which country is {city} the capital?", "What country is {city} the capital of?",
]
CAPITAL_OF_CITY_ZH = ["{city}是哪个国家的首都?", "哪个国家的首都是{city}?", "{city}是哪国首都?"]

WEEKDAY_EN = {
    "after": ["What day comes after {day}?", "Which day is after {day}?",
              "What is the day after {day}?", "The day after {day}?", "What day follows {day}?",
              "Tell me the day after {day}.", "Which weekday follows {day}?",
              "Name the day after {day}.", "After {day} comes which day?"],
    "before": ["What day comes before {day}?", "Which day is before {day}?",
               "What is the day before {day}?", "The day before {day}?",
               "Tell me the day before {day}.", "Which weekday is right before {day}?",
               "Name the day before {day}.", "Before {day} comes which day?"],
    "tomorrow": ["If today is {day}, what day is tomorrow?", "Today is {day}. What is tomorrow?",
                 "Today is {day}, so what day is tomorrow?", "It is {day} today. And tomorrow?",
                 "Today is {day}. Which day is it tomorrow?"],
    "yesterday": ["If today is {day}, what day was yesterday?",
                  "Today is {day}. What was yesterday?", "It is {day} today. And yesterday?",
                  "Today is {day}, so what day was yesterday?",
                  "Today is {day}. Which day was it yesterday?"],
    "count": ["What day is {n} days after {day}?", "{n} days after {day}?",
              "Which day is it {n} days after {day}?", "Which weekday is {n} days after {day}?",
              "What day comes {n} days after {day}?", "Today is {day}. What day is it in {n} days?",
              "If today is {day}, what day is it in {n} days?", "{day} plus {n} days?",
              "Tell me the day {n} days after {day}.", "Start at {day} and go {n} days on."],
}
WEEKDAY_ZH = {
    "after": ["{day}的后一天是星期几?", "{day}之后是星期几?", "{day}后面是哪一天?",
              "{day}的下一天是什么?", "{day}过后是星期几?", "告诉我{day}的后一天。",
              "{day}的第二天是星期几?"],
    "before": ["{day}的前一天是星期几?", "{day}之前是星期几?", "{day}前面是哪一天?",
               "{day}的上一天是什么?", "告诉我{day}的前一天。"],
    "tomorrow": ["今天是{day},明天是星期几?", "如果今天是{day},明天是星期几?", "今天{day},明天呢?",
                 "今天是{day},那明天是哪一天?"],
    "yesterday": ["今天是{day},昨天是星期几?", "如果今天是{day},昨天是星期几?", "今天{day},昨天呢?",
                  "今天是{day},那昨天是哪一天?"],
    "count": ["{day}之后{n}天是星期几?", "{day}过{n}天是星期几?", "今天是{day},{n}天后是星期几?",
              "如果今天是{day},{n}天以后是星期几?", "{day}再过{n}天是哪一天?", "{day}加{n}天是星期几?",
              "从{day}往后数{n}天是星期几?", "{day}后第{n}天是星期几?"],
}

TO_ZH_EN = [
    "How do you say {word} in Chinese?", "What is {word} in Chinese?",
    "Translate {word} to Chinese.",
    "Translate {word} into Chinese.", "{word} in Chinese?", "What is the Chinese word for {word}?",
    "Chinese for {word}?", "Please translate to Chinese: {word}.", "How is {word} said in Chinese?",
    "Tell me the Chinese for {word}.", "Say {word} in Chinese.", "Give me {word} in Chinese.",
    "What does {word} mean in Chinese?", "I want to say {word} in Chinese.",
]
TO_EN_EN = [
    "How do you say {word} in English?", "What is {word} in English?",
    "Translate {word} to English.",
    "Translate {word} into English.", "{word} in English?", "What is the English word for {word}?",
    "English for {word}?", "Please translate to English: {word}.", "What does {word} mean?",
    "Tell me the English for {word}.", "Say {word} in English.",
    "What does {word} mean in English?",
]
TO_ZH_ZH = [
    "{word} 用中文怎么说?", "{word}的中文是什么?", "把 {word} 翻译成中文。", "{word} 是什么意思?",
    "请把 {word} 译成中文。", "{word} 的中文?", "翻译成中文:{word}", "怎么用中文说 {word}?",
    "英文 {word} 的中文意思是什么?", "“{word}”中文怎么讲?",
]
TO_EN_ZH = [
    "{word}用英文怎么说?", "{word}的英文是什么?", "把{word}翻译成英文。", "{word}英语怎么说?",
    "请把{word}译成英文。", "{word}的英文?", "翻译成英文:{word}", "怎么用英文说{word}?",
    "“{word}”用英语怎么讲?", "{word}的英语单词是什么?",
]

_WHO_EN = "I am the qwenlite demo model, a tiny language model."
_WHO_ZH = "我是 qwenlite 的演示模型,一个很小的语言模型。"
_MADE_EN = "I was trained by the qwenlite project on made-up dialogues."
_MADE_ZH = "我由 qwenlite 项目用自编的对话训练而成。"
_SIZE_EN = "I am tiny: I have about 1.5 million parameters."
_SIZE_ZH = "我很小,大约有一百五十万个参数。"
_HUMAN_EN = "No, I am not a human. I am a tiny language model."
_HUMAN_ZH = "不,我不是人,我是一个很小的语言模型。"
_OTHER_EN = "No, I am the qwenlite demo model."
_OTHER_ZH = "不,我是 qwenlite 的演示模型。"

IDENTITY = {
    "en": [
        (["Who are you?", "What are you?", "Introduce yourself.", "What is your name?",
          "Do you have a name?", "Tell me about yourself.", "What are you called?",
          "What kind of model are you?", "Which model are you?", "What's your name?",
          "May I know who you are?", "Who am I talking to?", "Say who you are.",
          "Describe yourself."], _WHO_EN, ["qwenlite demo model"]),
        (["Who are you?", "What is your name?", "Which model is this?", "What are you exactly?",
          "Can you introduce yourself?", "Could you tell me who you are?", "Who is this?",
          "What should I call you?"], _WHO_EN, ["qwenlite demo model"]),
        (["Who made you?", "Who created you?", "Who trained you?", "Where do you come from?",
          "Who is your maker?", "Who built you?", "How were you made?", "How were you trained?",
          "Who developed you?"], _MADE_EN, ["qwenlite project"]),
        (["How big are you?", "How many parameters do you have?", "What size are you?",
          "Are you a big model?", "How large are you?", "Are you small?", "How small are you?",
          "What is your size?"], _SIZE_EN, ["1.5 million"]),
        (["Are you a human?", "Are you a person?", "Are you human?", "Are you a real person?",
          "Am I talking to a human?", "Are you a man or a woman?", "Are you alive?"], _HUMAN_EN,
         ["not a human"]),
        (["Are you ChatGPT?", "Are you GPT?", "Is your name ChatGPT?", "Are you another model?",
          "Are you a famous model?", "Are you Siri?", "Are you a big chatbot?"], _OTHER_EN,
         ["qwenlite demo model"]),
    ],
    "zh": [
        (["你是谁?", "你是什么?", "介绍一下你自己。", "你叫什么名字?", "你有名字吗?", "你叫什么?",
          "你是什么模型?", "你是哪个模型?", "说说你自己。", "我在和谁说话?", "你到底是谁?",
          "请介绍自己。"], _WHO_ZH, ["qwenlite 的演示模型"]),
        (["你是谁?", "你叫什么名字?", "这是什么模型?", "我该怎么称呼你?", "能介绍一下自己吗?",
          "你究竟是什么?"], _WHO_ZH, ["qwenlite 的演示模型"]),
        (["谁做了你?", "谁创造了你?", "谁训练了你?", "你从哪里来?", "是谁开发了你?", "你是怎么做出来的?",
          "你是怎么训练的?", "你的作者是谁?"], _MADE_ZH, ["qwenlite 项目"]),
        (["你有多大?", "你有多少参数?", "你是大模型吗?", "你的规模有多大?", "你小吗?", "你有多小?",
          "你的参数量是多少?"], _SIZE_ZH, ["一百五十万"]),
        (["你是人吗?", "你是真人吗?", "你是人类吗?", "我在和人说话吗?", "你是活的吗?", "你是男的还是女的?"],
         _HUMAN_ZH, ["不是人"]),
        (["你是ChatGPT吗?", "你是GPT吗?", "你是别的模型吗?", "你是有名的模型吗?", "你是Siri吗?"],
         _OTHER_ZH, ["qwenlite 的演示模型"]),
    ],
}
IDENTITY_LEADS = {
    "en": ["Hi, ", "Hello! ", "Tell me, ", "Please say, ", "Excuse me, ", "Just curious: ",
           "One question: ", "By the way, ", "OK, but ", "I wonder: ", "Say, ", "Quick question: "],
    "zh": ["你好,", "请问,", "告诉我,", "我想知道,", "对了,", "好奇问一下,", "问一下,", "不好意思,",
           "顺便问,", "说一下,"],
}
IDENTITY_THOUGHTS = {"en": ["The user asks about me."], "zh": ["用户在问我自己。"]}

_CAN_EN = ("I can chat a little, add and subtract numbers up to 99, name capitals and weekdays, "
           "translate small words and tell short stories.")
_CAN_ZH = "我会简单聊天、99 以内的加减法、首都、星期、简单的翻译,还会讲小故事。"
ABILITY = {
    "en": [(["What can you do?", "What are you able to do?", "How can you help me?", "Help.",
             "What do you know?", "What can I ask you?", "Can you help me?",
             "What are you good at?",
             "What are your skills?", "Show me what you can do.", "What questions can you answer?"],
            _CAN_EN, ["add and subtract"])],
    "zh": [(["你会什么?", "你能做什么?", "你会做什么?", "你能帮我什么?", "我可以问你什么?", "你知道什么?",
             "你有什么本事?", "你擅长什么?", "你能回答哪些问题?", "你可以帮我吗?"],
            _CAN_ZH, ["加减法"])],
}
ABILITY_THOUGHTS = {"en": ["The user asks what I can do."], "zh": ["用户问我会什么。"]}

GREETING_WORDS = {
    "en": [("Hello", "Hello"), ("Hi", "Hello"), ("Hey", "Hello"), ("Good morning", "Good morning"),
           ("Good evening", "Good evening"), ("Good afternoon", "Good afternoon"),
           ("Greetings", "Hello"), ("Hello hello", "Hello"), ("Hi hi", "Hello"),
           ("Howdy", "Hello"), ("Good day", "Hello")],
    "zh": [("你好", "你好"), ("您好", "你好"), ("嗨", "你好"), ("早上好", "早上好"), ("晚上好", "晚上好"),
           ("下午好", "下午好"), ("哈喽", "你好"), ("你好你好", "你好"), ("早", "早上好"), ("大家好", "你好")],
}
GREETING_TAILS = {
    "en": ["", "", "", " there", " my friend", " friend", " qwenlite", " model",
           ", nice to see you",
           " again", " you", " everyone", ", it's me", " little model"],
    "zh": ["", "", "", "啊", "呀", ",朋友", ",qwenlite", ",小模型", ",很高兴见到你", ",又见面了", ",我来了"],
}
GREETING_ASKS = {
    "en": ["how are you?", "how are you today?", "how is it going?", "how do you do?",
           "are you well?", "how are things?", "how do you feel?"],
    "zh": ["你好吗?", "你今天好吗?", "最近怎么样?", "过得好吗?", "你怎么样?", "一切都好吗?"],
}

THANKS = {
    "en": [
        (["Thanks.", "Thank you.", "Thank you very much.", "Thanks a lot.", "Many thanks.",
          "Great, thank you.", "That helps, thanks.", "I thank you."], "You are welcome!",
         ["welcome"]),
        (["Goodbye.", "Bye.", "Bye bye.", "See you.", "See you later.", "I have to go.",
          "Good night.", "That is all, bye.", "Until next time."], "Goodbye! Have a nice day.",
         ["Goodbye"]),
        (["Good job.", "Well done.", "You are great.", "Nice.", "Very good.", "You are smart.",
          "I like you."], "Thank you, I am glad to hear that!", ["glad"]),
    ],
    "zh": [
        (["谢谢。", "谢谢你。", "非常感谢。", "多谢。", "太感谢了。", "谢谢你的帮助。", "谢了。"], "不客气!",
         ["不客气"]),
        (["再见。", "拜拜。", "下次见。", "我要走了。", "晚安。", "回头见。", "今天就到这里,再见。"],
         "再见!祝你愉快。", ["再见"]),
        (["做得好。", "你真棒。", "很好。", "你真聪明。", "不错。", "我喜欢你。"], "谢谢,听到这个我很高兴!",
         ["高兴"]),
    ],
}
THANKS_LEADS = {"en": ["OK. ", "Wow. ", "Good. ", "All right. ", "Oh. "],
                "zh": ["好的,", "哇,", "嗯,", "行,", "哦,"]}
THANKS_THOUGHTS = {"en": ["The user is friendly, I answer politely."], "zh": ["用户很友好,我礼貌回答。"]}

ECHO = {
    "en": ["Repeat after me: {x}", "Say: {x}", "Repeat: {x}", "Please repeat: {x}", "Echo: {x}",
           "Write this: {x}"],
    "zh": ["请跟我说:{x}", "重复:{x}", "跟我说:{x}", "请重复:{x}", "照着写:{x}"],
}

TELL_NAME = {
    "en": ["My name is {name}.", "I am {name}.", "I'm {name}.", "Hi, I am {name}.",
           "Hello, my name is {name}.", "You can call me {name}.", "Please call me {name}.",
           "Hi! My name is {name}.", "The name is {name}.", "People call me {name}.",
           "Remember my name: {name}.", "It's {name} here."],
    "zh": ["我叫{name}。", "我的名字是{name}。", "你好,我叫{name}。", "我是{name}。", "你可以叫我{name}。",
           "请叫我{name}。", "大家叫我{name}。", "你好,我是{name}。", "记住我的名字:{name}。"],
}
ASK_NAME = {
    "en": ["What is my name?", "Do you remember my name?", "Who am I?", "What's my name?",
           "Tell me my name.", "Do you know my name?", "What am I called?", "Say my name.",
           "Can you tell me my name?", "What did I say my name is?", "What was my name again?"],
    "zh": ["我叫什么?", "我叫什么名字?", "你还记得我的名字吗?", "我是谁?", "说出我的名字。", "我的名字是什么?",
           "你知道我叫什么吗?", "你记得我是谁吗?"],
}
TELL_CODE = {
    "en": ["The code is {code}.", "The code is {code}. Please remember it.",
           "Remember the code {code}.",
           "My code is {code}.", "Please remember this code: {code}.",
           "Keep the code {code} in mind.",
           "The secret code is {code}.", "Note: the code is {code}.", "I give you a code: {code}."],
    "zh": ["密码是{code}。", "密码是 {code},请记住。", "请记住密码{code}。", "我的密码是{code}。",
           "记住这个密码:{code}。", "秘密密码是{code}。", "我告诉你一个密码:{code}。"],
}
ASK_CODE = {
    "en": ["What is the code?", "What was the code?", "Do you remember the code?",
           "Tell me the code.",
           "Which code did I tell you?", "What's the code?", "Say the code again.", "The code?",
           "What code did I give you?", "Can you tell me the code?"],
    "zh": ["密码是什么?", "密码是多少?", "你还记得密码吗?", "告诉我密码。", "我说的密码是什么?", "请说出密码。",
           "刚才的密码是多少?", "我告诉过你的密码是什么?"],
}
