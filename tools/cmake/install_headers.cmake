# Run at install time: copies the public headers and the contract they are built on into <include>/w4moe.
#
# Inside the project the contract is included as "contract/x.h" (and what describes checkpoints as "packing/x.h"), the short
# names under which NVRTC sees them too. Outside, such a name could meet a folder of somebody else's, so that the installed
# copies say "w4moe/contract/x.h".
if(IS_ABSOLUTE "${include_dir}")
  set(destination "$ENV{DESTDIR}${include_dir}/w4moe")
else()
  set(destination "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${include_dir}/w4moe")
endif()

function(w4moe_install_header from to)
  file(READ ${from} text)
  string(REPLACE "#include \"contract/" "#include \"w4moe/contract/" text "${text}")
  string(REPLACE "#include \"packing/" "#include \"w4moe/packing/" text "${text}")
  set(before "")
  if(EXISTS ${to})
    file(READ ${to} before)
  endif()
  if(text STREQUAL before)
    message(STATUS "Up-to-date: ${to}")
  else()
    message(STATUS "Installing: ${to}")
    file(WRITE ${to} "${text}")
  endif()
endfunction()

foreach(folder generator/include/w4moe runtime/include/w4moe)
  file(GLOB headers RELATIVE ${source_dir}/${folder} ${source_dir}/${folder}/*.h ${source_dir}/${folder}/*.hpp)
  foreach(header ${headers})
    w4moe_install_header(${source_dir}/${folder}/${header} ${destination}/${header})
  endforeach()
endforeach()
foreach(folder contract packing)
  file(GLOB headers RELATIVE ${source_dir}/templates/${folder} ${source_dir}/templates/${folder}/*.h)
  foreach(header ${headers})
    w4moe_install_header(${source_dir}/templates/${folder}/${header} ${destination}/${folder}/${header})
  endforeach()
endforeach()
