# Writes OUTPUT, a C++ source with the page PAGE and the policy it is served
# with: cmake -D PAGE=index.html -D OUTPUT=page.cc -P embed.cmake
# A line {{name}} of PAGE stands for the file `name` in the folder of PAGE.

# The base64 form of a SHA-256 in hexadecimal.
function(base64_of hex result)
  set(alphabet
      ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  set(text)
  foreach(begin RANGE 0 60 6)  # three bytes are four characters
    string(SUBSTRING "${hex}0000" ${begin} 6 digits)
    foreach(shift IN ITEMS 18 12 6 0)
      math(EXPR index "(0x${digits} >> ${shift}) & 63")
      string(SUBSTRING "${alphabet}" ${index} 1 character)
      string(APPEND text "${character}")
    endforeach()
  endforeach()
  # 32 bytes fill all but the last character.
  string(SUBSTRING "${text}" 0 43 text)
  set(${result} "${text}=" PARENT_SCOPE)
endfunction()

# The source of a policy that allows what stands between the tags.
function(hash_between page opening closing result)
  string(FIND "${page}" "${opening}" begin)
  string(FIND "${page}" "${closing}" end)
  if(begin EQUAL -1 OR end LESS begin)
    message(FATAL_ERROR "${PAGE}: want ${opening} before ${closing}")
  endif()
  string(LENGTH "${opening}" length)
  math(EXPR begin "${begin} + ${length}")
  math(EXPR length "${end} - ${begin}")
  string(SUBSTRING "${page}" ${begin} ${length} text)
  foreach(tag IN ITEMS "${opening}" "${closing}")
    string(REPLACE "${tag}" "" rest "${page}")
    string(LENGTH "${page}${tag}" before)
    string(LENGTH "${rest}" after)
    string(LENGTH "${tag}${tag}" twice)
    math(EXPR after "${after} + ${twice}")
    if(NOT before EQUAL after)
      message(FATAL_ERROR "${PAGE}: want one ${tag}")
    endif()
  endforeach()
  string(SHA256 hex "${text}")
  base64_of("${hex}" base64)
  set(${result} "'sha256-${base64}'" PARENT_SCOPE)
endfunction()

file(READ "${PAGE}" page)
get_filename_component(folder "${PAGE}" ABSOLUTE)
get_filename_component(folder "${folder}" DIRECTORY)
string(REGEX MATCHALL "{{[a-z]+[.](css|js)}}\n" lines "${page}")
foreach(line IN LISTS lines)
  string(REGEX REPLACE "[{}\n]" "" name "${line}")
  file(READ "${folder}/${name}" text)
  string(REPLACE "${line}" "${text}" page "${page}")
endforeach()
if(page MATCHES "\n({{[^\n]*)")
  message(FATAL_ERROR "${PAGE}: want {{name.js}}, not ${CMAKE_MATCH_1}")
endif()
hash_between("${page}" "<style>" "</style>" style)
hash_between("${page}" "<script type=\"module\">" "</script>" script)
string(JOIN "; " policy
  "default-src 'none'" "script-src ${script}" "style-src ${style}"
  "connect-src 'self'" "img-src data:" "base-uri 'none'" "form-action 'none'"
  "frame-ancestors 'none'" "require-trusted-types-for 'script'"
  "trusted-types 'none'")
string(CONCAT source
  "#include \"services/gateway/page/page.h\"\n\n"
  "namespace foretoken::gateway {\n\n"
  "absl::string_view PageHtml() {\n"
  "  return R\"foretoken(${page})foretoken\";\n}\n\n"
  "absl::string_view PagePolicy() {\n  return \"${policy}\";\n}\n\n"
  "}  // namespace foretoken::gateway\n")
file(WRITE "${OUTPUT}" "${source}")
