# SPDX-License-Identifier: Apache-2.0
#
# Gives chat the line editor GNU readline, version 8 or newer, where it is found. readline is under the GPL,
# version 3; chat alone links it, and -DQWENLITE_CHAT_READLINE=OFF keeps it out.
option(QWENLITE_CHAT_READLINE "Edit lines in chat with GNU readline (GPL 3) where it is found" ON)
find_path(QWENLITE_READLINE_INCLUDE readline/readline.h)
find_library(QWENLITE_READLINE_LIBRARY readline)
mark_as_advanced(QWENLITE_READLINE_INCLUDE QWENLITE_READLINE_LIBRARY)

set(QWENLITE_READLINE_USED OFF)
if(QWENLITE_CHAT_READLINE AND QWENLITE_READLINE_INCLUDE AND QWENLITE_READLINE_LIBRARY)
  # Look-alikes (libedit) call themselves readline too, but say an older version.
  file(STRINGS "${QWENLITE_READLINE_INCLUDE}/readline/readline.h" version
    REGEX "^#define RL_VERSION_MAJOR[ \t]+([89]|[1-9][0-9])" LIMIT_COUNT 1)
  if(version)
    set(QWENLITE_READLINE_USED ON)
  endif()
endif()

set(readline_reader "${CMAKE_CURRENT_LIST_DIR}/readline_reader.cpp")
if(QWENLITE_READLINE_USED)
  target_compile_definitions(chat PRIVATE QWENLITE_CHAT_READLINE)
  target_include_directories(chat SYSTEM PRIVATE "${QWENLITE_READLINE_INCLUDE}")
  target_link_libraries(chat PRIVATE "${QWENLITE_READLINE_LIBRARY}")
else()
  set_source_files_properties("${readline_reader}" PROPERTIES HEADER_FILE_ONLY ON)
  message(STATUS "qwenlite: chat is built without line editing (Debian: libreadline-dev)")
endif()
set_property(TARGET chat PROPERTY QWENLITE_READLINE ${QWENLITE_READLINE_USED})
