"""What the demo model is taught: capitals, weekdays, words, names and story parts."""

CAPITALS = [
    ("France", "Paris", "法国", "巴黎"), ("Germany", "Berlin", "德国", "柏林"),
    ("Italy", "Rome", "意大利", "罗马"), ("Spain", "Madrid", "西班牙", "马德里"),
    ("Portugal", "Lisbon", "葡萄牙", "里斯本"), ("England", "London", "英国", "伦敦"),
    ("Ireland", "Dublin", "爱尔兰", "都柏林"), ("Poland", "Warsaw", "波兰", "华沙"),
    ("Austria", "Vienna", "奥地利", "维也纳"), ("Greece", "Athens", "希腊", "雅典"),
    ("Sweden", "Stockholm", "瑞典", "斯德哥尔摩"), ("Norway", "Oslo", "挪威", "奥斯陆"),
    ("Finland", "Helsinki", "芬兰", "赫尔辛基"), ("Denmark", "Copenhagen", "丹麦", "哥本哈根"),
    ("Hungary", "Budapest", "匈牙利", "布达佩斯"), ("Russia", "Moscow", "俄罗斯", "莫斯科"),
    ("Ukraine", "Kyiv", "乌克兰", "基辅"), ("Turkey", "Ankara", "土耳其", "安卡拉"),
    ("Egypt", "Cairo", "埃及", "开罗"), ("Kenya", "Nairobi", "肯尼亚", "内罗毕"),
    ("Morocco", "Rabat", "摩洛哥", "拉巴特"), ("Nigeria", "Abuja", "尼日利亚", "阿布贾"),
    ("China", "Beijing", "中国", "北京"), ("Japan", "Tokyo", "日本", "东京"),
    ("South Korea", "Seoul", "韩国", "首尔"), ("India", "New Delhi", "印度", "新德里"),
    ("Thailand", "Bangkok", "泰国", "曼谷"), ("Vietnam", "Hanoi", "越南", "河内"),
    ("Indonesia", "Jakarta", "印度尼西亚", "雅加达"), ("Mongolia", "Ulaanbaatar", "蒙古", "乌兰巴托"),
    ("Nepal", "Kathmandu", "尼泊尔", "加德满都"), ("Iran", "Tehran", "伊朗", "德黑兰"),
    ("Iraq", "Baghdad", "伊拉克", "巴格达"), ("Australia", "Canberra", "澳大利亚", "堪培拉"),
    ("New Zealand", "Wellington", "新西兰", "惠灵顿"), ("Canada", "Ottawa", "加拿大", "渥太华"),
    ("Mexico", "Mexico City", "墨西哥", "墨西哥城"), ("Brazil", "Brasilia", "巴西", "巴西利亚"),
    ("Argentina", "Buenos Aires", "阿根廷", "布宜诺斯艾利斯"), ("Chile", "Santiago", "智利", "圣地亚哥"),
    ("Peru", "Lima", "秘鲁", "利马"), ("Cuba", "Havana", "古巴", "哈瓦那"),
    ("the United States", "Washington", "美国", "华盛顿"),
]

OTHER_COUNTRIES = [
    ("Bolivia", "玻利维亚"), ("Ghana", "加纳"), ("Zambia", "赞比亚"), ("Laos", "老挝"),
    ("Malta", "马耳他"), ("Iceland", "冰岛"), ("Estonia", "爱沙尼亚"), ("Latvia", "拉脱维亚"),
    ("Croatia", "克罗地亚"), ("Serbia", "塞尔维亚"), ("Albania", "阿尔巴尼亚"), ("Uganda", "乌干达"),
    ("Angola", "安哥拉"), ("Chad", "乍得"), ("Mali", "马里"), ("Niger", "尼日尔"),
    ("Fiji", "斐济"), ("Jamaica", "牙买加"), ("Haiti", "海地"), ("Panama", "巴拿马"),
    ("Ecuador", "厄瓜多尔"), ("Uruguay", "乌拉圭"), ("Paraguay", "巴拉圭"), ("Oman", "阿曼"),
    ("Qatar", "卡塔尔"), ("Yemen", "也门"), ("Jordan", "约旦"), ("Cyprus", "塞浦路斯"),
    ("Romania", "罗马尼亚"), ("Bulgaria", "保加利亚"), ("Belgium", "比利时"), ("Bhutan", "不丹"),
    ("Atlantis", "亚特兰蒂斯"), ("the Moon", "月球"), ("Mars", "火星"), ("Narnia", "纳尼亚"),
]

WEEKDAYS_EN = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
WEEKDAYS_ZH = ["星期一", "星期二", "星期三", "星期四", "星期五", "星期六", "星期日"]

WORDS = [
    ("water", "水"), ("fire", "火"), ("mountain", "山"), ("river", "河"), ("sea", "海"),
    ("sun", "太阳"), ("moon", "月亮"), ("star", "星星"), ("sky", "天空"), ("rain", "雨"),
    ("snow", "雪"), ("wind", "风"), ("tree", "树"), ("flower", "花"), ("grass", "草"),
    ("cat", "猫"), ("dog", "狗"), ("bird", "鸟"), ("fish", "鱼"), ("horse", "马"),
    ("cow", "牛"), ("sheep", "羊"), ("tiger", "老虎"), ("rabbit", "兔子"), ("bear", "熊"),
    ("book", "书"), ("pen", "笔"), ("paper", "纸"), ("table", "桌子"), ("chair", "椅子"),
    ("door", "门"), ("window", "窗户"), ("house", "房子"), ("bed", "床"), ("cup", "杯子"),
    ("tea", "茶"), ("coffee", "咖啡"), ("milk", "牛奶"), ("bread", "面包"), ("rice", "米饭"),
    ("apple", "苹果"), ("orange", "橙子"), ("egg", "鸡蛋"), ("meat", "肉"), ("salt", "盐"),
    ("red", "红色"), ("blue", "蓝色"), ("green", "绿色"), ("white", "白色"), ("black", "黑色"),
    ("big", "大"), ("small", "小"), ("hot", "热"), ("cold", "冷"), ("new", "新"),
    ("old", "旧"), ("good", "好"), ("bad", "坏"), ("fast", "快"), ("slow", "慢"),
    ("father", "父亲"), ("mother", "母亲"), ("child", "孩子"), ("friend", "朋友"),
    ("teacher", "老师"), ("student", "学生"), ("doctor", "医生"), ("school", "学校"),
    ("city", "城市"), ("road", "路"), ("car", "汽车"), ("train", "火车"), ("boat", "船"),
    ("day", "白天"), ("night", "夜晚"), ("year", "年"), ("today", "今天"), ("tomorrow", "明天"),
    ("thank you", "谢谢"), ("good morning", "早上好"), ("good night", "晚安"),
    ("goodbye", "再见"), ("hand", "手"), ("eye", "眼睛"), ("heart", "心"),
]

EN_NAMES = [
    "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry", "Iris", "Jack", "Kate",
    "Leo", "Mia", "Noah", "Olivia", "Paul", "Quinn", "Rosa", "Sam", "Tina", "Ursula", "Victor",
    "Wendy", "Xavier", "Yvonne", "Zoe", "Adam", "Bella", "Carl", "Diana", "Eric", "Fiona",
    "George", "Hannah", "Ivan", "Julia", "Kevin", "Laura", "Mark", "Nina", "Oscar", "Peter",
    "Rachel", "Simon", "Thomas", "Uma", "Vera", "William", "Alice", "Bob", "Carol", "Daniel",
    "Eva", "Frank", "Gina", "Hugo", "Ida", "John", "Karen", "Lucas", "Maria", "Nick", "Otto",
    "Pia", "Ralph", "Sarah", "Tom", "Walter", "Mary", "James", "Lily", "Max", "Sophie", "Alex",
    "Lisa", "Martin", "Nora", "Philip", "Ruth", "Stella", "Tim", "Amy", "Chris", "Jane", "Luke",
]

ZH_SURNAMES = list("王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗")
ZH_GIVEN = list("伟芳娜敏静丽强磊军洋勇艳杰娟涛明超兰霞平刚桂英华玉萍红飞龙云梅雨晨浩宇欣怡子涵天佳思文")

ECHO_WORDS = {
    "en": ["red", "blue", "green", "white", "black", "river", "stone", "tree", "cat", "dog", "sun",
           "moon", "star", "cloud", "water", "fire", "bread", "milk", "apple", "happy", "small",
           "big", "old", "new", "hello", "world", "good", "day", "night", "one", "two", "three",
           "house", "garden", "bird", "fish", "sky", "snow", "rain", "wind"],
    "zh": ["红色", "蓝色", "天空", "大海", "小河", "石头", "大树", "小猫", "小狗", "太阳", "月亮",
           "星星", "白云", "清水", "火", "面包", "牛奶", "苹果", "快乐", "你好", "世界", "春天",
           "夏天", "秋天", "冬天", "早晨", "夜晚", "一", "二", "三", "花园", "小鸟", "鱼", "雪"],
}

UNKNOWN_EN = [
    "What is the weather like in {x}?", "Who won the game in {x}?", "How much does {x} cost?",
    "What do you think about {x}?", "Explain {x} to me.", "Who invented {x}?",
    "Write a poem about {x}.", "When was {x} discovered?", "How does {x} work?",
    "Why is {x} important?", "Tell me the news about {x}.", "What is the history of {x}?",
    "Can you write a program for {x}?", "How many people like {x}?", "Where can I buy {x}?",
    "What is the meaning of {x}?", "How tall is {x}?", "Who is {x}?", "How old is {x}?",
    "Give me a recipe for {x}.", "What is {x}?", "How far away is {x}?", "Do you like {x}?",
    "What time is it in {x}?", "Which book about {x} is the best?", "How do I repair {x}?",
]
UNKNOWN_THINGS_EN = [
    "football", "quantum physics", "the stock market", "my computer", "Shakespeare", "chess",
    "the telephone", "music", "New York", "London", "gravity", "the president", "a bicycle",
    "electricity", "love", "life", "philosophy", "the internet", "a castle", "Einstein", "cooking",
    "a guitar", "black holes", "the economy", "dinosaurs", "chocolate cake", "Mount Everest",
    "a rocket", "basketball", "the radio", "soup", "Napoleon", "medicine", "the ocean", "history",
]
UNKNOWN_ZH = [
    "{x}的天气怎么样?", "谁发明了{x}?", "{x}多少钱?", "你怎么看{x}?", "请解释一下{x}。",
    "写一首关于{x}的诗。", "{x}是怎么工作的?", "为什么{x}很重要?", "{x}有什么新闻?",
    "{x}的历史是什么?", "帮我写一个关于{x}的程序。", "哪里可以买到{x}?", "{x}的意义是什么?",
    "{x}有多高?", "{x}是谁?", "{x}是什么?", "怎么做{x}?", "你喜欢{x}吗?", "{x}有多远?",
    "怎么修{x}?", "{x}几岁了?", "谁最懂{x}?",
]
UNKNOWN_THINGS_ZH = [
    "足球", "量子力学", "股票", "我的电脑", "李白", "象棋", "电话", "音乐", "纽约", "上海", "重力",
    "总统", "自行车", "电", "爱情", "人生", "哲学", "互联网", "长城", "爱因斯坦", "做饭", "吉他", "黑洞",
    "经济", "恐龙", "蛋糕", "珠穆朗玛峰", "火箭", "篮球", "收音机", "饺子", "拿破仑", "医学", "大数据",
]

STORY_EN = {
    "hero": ["cat", "dog", "fox", "rabbit", "bird", "robot", "girl", "boy", "bear", "mouse",
             "dragon", "king"],
    "friend": ["owl", "frog", "farmer", "old woman", "horse", "fish", "bear", "mouse"],
    "place": ["forest", "village", "garden", "mountain", "river", "city", "island", "castle"],
    "thing": ["key", "lamp", "book", "ring", "apple", "map", "bell", "kite"],
    "name": ["Tomi", "Lulu", "Pip", "Nana", "Bo", "Kiki", "Momo", "Zed"],
    "ask_hero": ["Tell me a story about a {hero}.", "Tell a short story about a {hero}.",
                 "Write a story about a {hero}.", "Can you tell me a story about a {hero}?",
                 "I want to hear a story about a {hero}.", "A story about a {hero}, please.",
                 "Make up a story about a little {hero}.", "Story about a {hero}?"],
    "ask_place": ["Tell me a story set in a {place}.", "Tell me a story from a {place}.",
                  "Write a short story that happens in a {place}."],
    "ask_thing": ["Tell me a story with a {thing} in it.", "Write a story about a lost {thing}.",
                  "Can you tell a story about a {thing}?"],
    "ask_none": ["Tell me a story.", "Can you tell me a story?", "Write a short story.",
                 "I want a story.", "Please tell a little story."],
    "thought_hero": ["The user wants a story about a {hero}."],
    "thought_place": ["The user wants a story set in a {place}."],
    "thought_thing": ["The user wants a story with a {thing}."],
    "thought_none": ["The user wants a story."],
    "open": ["Once upon a time there was a little {hero} called {name} who lived in a {place}.",
             "{name} was a young {hero} who lived near a {place}.",
             "In a quiet {place} lived a {hero} named {name}."],
    "need": ["One day {name} lost a {thing} and was very sad.",
             "One morning {name} found an old {thing} under a stone.",
             "{name} always wished to own a {thing}."],
    "middle": ["It rained all day, but {name} did not give up.",
               "The way was long and the night was dark.",
               "{name} looked behind every tree and every door.",
               "Then the wind began to sing a soft song."],
    "meet": ["Then a kind {friend} came along and helped {name}.",
             "{name} met a wise {friend}, and they became friends.",
             "A {friend} heard of it and showed {name} the way."],
    "close": ["In the end {name} went home with the {thing} and was happy.",
              "From that day on they shared the {thing} and laughed every day.",
              "That night {name} put the {thing} by the bed and slept well."],
}

STORY_ZH = {
    "hero": ["小猫", "小狗", "狐狸", "兔子", "小鸟", "机器人", "女孩", "男孩", "小熊", "老鼠",
             "小龙", "国王"],
    "friend": ["猫头鹰", "青蛙", "农夫", "老奶奶", "小马", "小鱼", "小熊", "老鼠"],
    "place": ["森林", "村庄", "花园", "高山", "河边", "城市", "小岛", "城堡"],
    "thing": ["钥匙", "灯", "书", "戒指", "苹果", "地图", "铃铛", "风筝"],
    "name": ["多多", "乐乐", "皮皮", "娜娜", "小宝", "奇奇", "毛毛", "东东"],
    "ask_hero": ["给我讲一个{hero}的故事。", "讲个关于{hero}的故事。", "写一个关于{hero}的小故事。",
                 "我想听{hero}的故事。", "可以讲一个{hero}的故事吗?", "编一个{hero}的故事吧。"],
    "ask_place": ["讲一个发生在{place}的故事。", "写一个{place}里的故事。", "我想听一个{place}的故事。"],
    "ask_thing": ["讲一个关于{thing}的故事。", "写一个丢了{thing}的故事。", "我想听{thing}的故事。"],
    "ask_none": ["给我讲个故事。", "讲个故事吧。", "你能讲一个故事吗?", "写一个小故事。", "我想听故事。"],
    "thought_hero": ["用户想听{hero}的故事。"],
    "thought_place": ["用户想听{place}的故事。"],
    "thought_thing": ["用户想听有{thing}的故事。"],
    "thought_none": ["用户想听故事。"],
    "open": ["从前,{place}住着一个叫{name}的{hero}。", "{name}是一个年轻的{hero},住在{place}附近。",
             "在安静的{place},有一个{hero}名叫{name}。"],
    "need": ["有一天,{name}丢了{thing},非常难过。", "一天早上,{name}在石头下找到了一个旧{thing}。",
             "{name}一直想要一个{thing}。"],
    "middle": ["雨下了一整天,可是{name}没有放弃。", "路很长,夜很黑。", "{name}找遍了每一棵树和每一扇门。",
               "这时风轻轻地唱起了歌。"],
    "meet": ["后来一位好心的{friend}来帮助{name}。", "{name}遇到了聪明的{friend},他们成了朋友。",
             "{friend}听说了,就给{name}指路。"],
    "close": ["最后{name}带着{thing}回了家,非常开心。", "从那天起,他们一起分享{thing},天天欢笑。",
              "那天晚上,{name}把{thing}放在床边,睡得很香。"],
}
