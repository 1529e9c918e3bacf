// SPDX-License-Identifier: Apache-2.0
//
// Six conversations with the exact prompts of both families and their token ids (a single number stands
// for the count of ids). Made from the published templates and tokenizers.
#pragma once

#include <vector>

struct Conversation {
  const char* request;  // as parse_chat_request takes it
  const char* qwen3;    // prompts
  const char* qwen3_5;
  std::vector<int> qwen3_ids;
  std::vector<int> qwen3_5_ids;
};

// clang-format off
inline const std::vector<Conversation> conversations{
    {  // A
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}",
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        {151644, 872, 198, 9707, 151645, 198, 151644, 77091, 198},
        {248045, 846, 198, 9419, 248046, 198, 248045, 74455, 198, 248068, 271, 248069, 271}},
    {  // B
        "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", \"c"
        "ontent\": \"Hello\"}], \"enable_thinking\": false}",
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assi"
        "stant\n<think>\n\n</think>\n\n",
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assi"
        "stant\n<think>\n\n</think>\n\n",
        {151644, 8948, 198, 3430, 9814, 13, 151645, 198, 151644, 872, 198, 9707, 151645, 198, 151644,
         77091, 198, 151667, 271, 151668, 271},
        {248045, 8678, 198, 3320, 9522, 13, 248046, 198, 248045, 846, 198, 9419, 248046, 198, 248045,
         74455, 198, 248068, 271, 248069, 271}},
    {  // C
        "{\"messages\": [{\"role\": \"user\", \"content\": \"1+1?\"}, {\"role\": \"assistant\", \"con"
        "tent\": \"<think>\\neasy\\n</think>\\n\\n2\"}, {\"role\": \"user\", \"content\": \"And 2+2?"
        "\"}], \"enable_thinking\": true}",
        "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n<|im_start|>user\nAnd "
        "2+2?<|im_end|>\n<|im_start|>assistant\n",
        "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n<|im_start|>user\nAnd "
        "2+2?<|im_end|>\n<|im_start|>assistant\n<think>\n",
        {151644, 872, 198, 16, 10, 16, 30, 151645, 198, 151644, 77091, 198, 17, 151645, 198, 151644,
         872, 198, 3036, 220, 17, 10, 17, 30, 151645, 198, 151644, 77091, 198},
        {248045, 846, 198, 16, 10, 16, 30, 248046, 198, 248045, 74455, 198, 17, 248046, 198, 248045,
         846, 198, 2939, 220, 17, 10, 17, 30, 248046, 198, 248045, 74455, 198, 248068, 198}},
    {  // D
        "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", \"c"
        "ontent\": \"Weather in Paris?\"}], \"tools\": [{\"type\": \"function\", \"function\": {\"nam"
        "e\": \"get_weather\", \"description\": \"Get the weather.\", \"parameters\": {\"type\": \"ob"
        "ject\", \"properties\": {\"city\": {\"type\": \"string\"}}, \"required\": [\"city\"]}}}]}",
        "<|im_start|>system\nBe brief.\n\n# Tools\n\nYou may call one or more functions to assist wit"
        "h the user query.\n\nYou are provided with function signatures within <tools></tools> XML ta"
        "gs:\n<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"descripti"
        "on\": \"Get the weather.\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\""
        ": {\"type\": \"string\"}}, \"required\": [\"city\"]}}}\n</tools>\n\nFor each function call, "
        "return a json object with function name and arguments within <tool_call></tool_call> XML tag"
        "s:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call"
        "><|im_end|>\n<|im_start|>user\nWeather in Paris?<|im_end|>\n<|im_start|>assistant\n",
        "<|im_start|>system\n# Tools\n\nYou have access to the following functions:\n\n<tools>\n{\"ty"
        "pe\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": \"Get the wea"
        "ther.\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"stri"
        "ng\"}}, \"required\": [\"city\"]}}}\n</tools>\n\nIf you choose to call a function ONLY reply"
        " in the following format with NO suffix:\n\n<tool_call>\n<function=example_function_name>\n<"
        "parameter=example_parameter_1>\nvalue_1\n</parameter>\n<parameter=example_parameter_2>\nThis"
        " is the value for the second parameter\nthat can span\nmultiple lines\n</parameter>\n</funct"
        "ion>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified for"
        "mat: an inner <function=...></function> block must be nested within <tool_call></tool_call> "
        "XML tags\n- Required parameters MUST be specified\n- You may provide optional reasoning for "
        "your function call in natural language BEFORE the function call, but NOT after\n- If there i"
        "s no function call available, answer the question like normal with your current knowledge an"
        "d do not tell the user about function calls\n</IMPORTANT>\n\nBe brief.<|im_end|>\n<|im_start"
        "|>user\nWeather in Paris?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        {151},
        {275}},
    {  // E
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Weather in Paris and Rome?\"}, {\"role\""
        ": \"assistant\", \"content\": \"\", \"reasoning_content\": \"Call twice.\", \"tool_calls\": "
        "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"arguments\": {\"city\""
        ": \"Paris\"}}}, {\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"argumen"
        "ts\": {\"city\": \"Rome\"}}}]}, {\"role\": \"tool\", \"content\": \"18 C\"}, {\"role\": \"to"
        "ol\", \"content\": \"24 C\"}]}",
        "<|im_start|>user\nWeather in Paris and Rome?<|im_end|>\n<|im_start|>assistant\n<think>\nCall"
        " twice.\n</think>\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Pa"
        "ris\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \""
        "Rome\"}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n18 C\n</tool_response>"
        "\n<tool_response>\n24 C\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
        "<|im_start|>user\nWeather in Paris and Rome?<|im_end|>\n<|im_start|>assistant\n<think>\nCall"
        " twice.\n</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</paramet"
        "er>\n</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n<parameter=city>\nRome"
        "\n</parameter>\n</function>\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n18 C"
        "\n</tool_response>\n<tool_response>\n24 C\n</tool_response><|im_end|>\n<|im_start|>assistant"
        "\n<think>\n\n</think>\n\n",
        {151644, 872, 198, 28981, 304, 12095, 323, 21718, 30, 151645, 198, 151644, 77091, 198,
         151667, 198, 7220, 10917, 624, 151668, 271, 151657, 198, 4913, 606, 788, 330, 455, 69364,
         497, 330, 16370, 788, 5212, 8926, 788, 330, 59604, 95642, 151658, 198, 151657, 198, 4913,
         606, 788, 330, 455, 69364, 497, 330, 16370, 788, 5212, 8926, 788, 330, 49, 635, 95642,
         151658, 151645, 198, 151644, 872, 198, 151665, 198, 16, 23, 356, 198, 151666, 198, 151665,
         198, 17, 19, 356, 198, 151666, 151645, 198, 151644, 77091, 198},
        {248045, 846, 198, 28034, 303, 11751, 321, 21047, 30, 248046, 198, 248045, 74455, 198,
         248068, 198, 6994, 10598, 13, 198, 248069, 271, 248058, 198, 27, 1628, 27362, 67017, 29,
         198, 27, 15704, 28, 8656, 29, 198, 57590, 198, 510, 15704, 29, 198, 510, 1628, 29, 198,
         248059, 198, 248058, 198, 27, 1628, 27362, 67017, 29, 198, 27, 15704, 28, 8656, 29, 198, 49,
         617, 198, 510, 15704, 29, 198, 510, 1628, 29, 198, 248059, 248046, 198, 248045, 846, 198,
         248066, 198, 16, 23, 351, 198, 248067, 198, 248066, 198, 17, 19, 351, 198, 248067, 248046,
         198, 248045, 74455, 198, 248068, 271, 248069, 271}},
    {  // F
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"conte"
        "nt\": \"Hello!\"}], \"add_generation_prompt\": false}",
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nHello!<|im_end"
        "|>\n",
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nHello!<|im_end"
        "|>\n",
        {151644, 872, 198, 13048, 151645, 198, 151644, 77091, 198, 151667, 271, 151668, 271, 9707, 0,
         151645, 198},
        {248045, 846, 198, 12675, 248046, 198, 248045, 74455, 198, 248068, 271, 248069, 271, 9419, 0,
         248046, 198}},
};
// clang-format on
