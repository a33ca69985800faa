#include "metal/emulated/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/error.h"

namespace menagerie::metal::emulated {

bool run(const std::vector<std::string>& command, const std::filesystem::path& complaints) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, complaints.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  const int code = ::posix_spawnp(&child, words[0], &actions, nullptr, words.data(), ::environ);
  ::posix_spawn_file_actions_destroy(&actions);
  require(code == 0, "the compiler ", command[0], " cannot be started: ", std::strerror(code));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    require(errno == EINTR, "waiting for the compiler failed: ", std::strerror(errno));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace menagerie::metal::emulated
