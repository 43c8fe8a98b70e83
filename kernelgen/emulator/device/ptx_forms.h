// The forms of PTX instructions that the emulator knows.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace emulator {

struct Call;
using Handler = void (*)(const Call&);

// An instruction's form: its name and qualifiers, the function that executes it, and how many operands it takes.
//
// The text has a word for each part of the name. A word lists alternatives, such as rn|rz, or names a list of
// ptx_forms.cpp, such as <round>; `?` makes it optional; `@90` says which compute capability an alternative needs; `#`
// stands for a number. Like ptxas, the emulator takes qualifiers in any order, but types in theirs.
struct Form {
  const char* text;
  Handler handler;
  int least, most = least;  // Operands.
  int capability = 0;       // The least that has it; below 75 is not told apart.
};

struct Match {
  const Form* form = nullptr;
  int capability = 0;
  std::string fault;  // What is wrong with the name, where no form fits.
};

Match form_of(const std::vector<std::string>& parts);
// The operands that the parts add to those of the form.
int further_operands(const std::vector<std::string>& parts);

}  // namespace emulator
