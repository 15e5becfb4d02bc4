// SPDX-License-Identifier: Apache-2.0
// zoadam_conformance DIR [--transport thread|mpi|single] [--skip PREFIX]...: every case file of a folder, through the
// library.
#include "comparison.hpp"
#include "launch.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr char usage[] =
    "usage: zoadam_conformance DIR [--transport thread|mpi|single] [--skip PREFIX]...\n"
    "Runs every *.safetensors file in DIR and compares with the results in it.\n"
    "  --transport thread  one thread per worker (the default)\n"
    "              mpi     under mpirun: the files whose workers are as many as the ranks\n"
    "              single  the files with one worker\n"
    "  --skip PREFIX       leave out files whose names begin with PREFIX; they are listed and counted\n"
    "Exit status 0 if at least one file ran and all that ran passed.\n";

struct settings {
  std::string folder;
  std::string transport = "thread";
  std::vector<std::string> skip;
};

settings parse(int argc, char** argv) {
  settings s;
  for (int i = 1; i < argc; ++i) {
    std::string const argument = argv[i];
    if (argument == "--transport" || argument == "--skip") {
      if (++i == argc) throw std::invalid_argument(argument + " needs a value");
      if (argument == "--skip" && *argv[i] == '\0') throw std::invalid_argument("--skip needs a prefix");
      if (argument == "--skip")
        s.skip.push_back(argv[i]);
      else
        s.transport = argv[i];
    } else if (argument.rfind("-", 0) == 0 || !s.folder.empty()) {
      throw std::invalid_argument("unknown argument " + argument);
    } else {
      s.folder = argument;
    }
  }
  if (s.folder.empty()) throw std::invalid_argument("no folder given");
  if (s.transport != "thread" && s.transport != "single" && s.transport != "mpi")
    throw std::invalid_argument("unknown transport " + s.transport);
#if !ZOADAM_CONFORMANCE_MPI
  if (s.transport == "mpi") throw std::invalid_argument("this program was built without MPI");
#endif
  return s;
}

std::vector<std::filesystem::path> files_of(std::string const& folder) {
  std::vector<std::filesystem::path> result;
  for (auto const& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") result.push_back(entry.path());
  std::sort(result.begin(), result.end());
  return result;
}

/// What happened to the files; prints on rank 0 alone.
class tally {
 public:
  explicit tally(bool prints) : prints_(prints) {}

  void line(std::string const& name, std::string const& rest) const {
    if (!prints_) return;
    std::printf("%-66s %s\n", name.c_str(), rest.c_str());
    std::fflush(stdout);
  }
  void failed(std::string const& name, std::string const& details) {
    ++failed_;
    line(name, "FAILED " + details);
  }
  void passed(std::string const& name, std::string const& details) {
    ++passed_;
    line(name, "ok    " + details);
  }
  void skipped(std::string const& name, std::string const& prefix) {
    ++skipped_;
    line(name, "skipped by --skip " + prefix);
  }
  void of_other_size() { ++of_other_size_; }

  /// Prints the totals; whether all is well.
  bool finish(settings const& s, int ranks) const {
    if (!prints_) return failed_ == 0;
    if (skipped_ > 0) std::printf("%d skipped by --skip\n", skipped_);
    if (s.transport != "thread")
      std::printf("%d files with workers = %d run, %d with another number left out\n", passed_ + failed_, ranks,
                  of_other_size_);
    if (passed_ + failed_ == 0) std::printf("no file to run: that is a failure\n");
    std::printf("%d passed, %d failed\n", passed_, failed_);
    return failed_ == 0 && passed_ > 0;
  }

 private:
  bool prints_;
  int passed_ = 0, failed_ = 0, skipped_ = 0, of_other_size_ = 0;
};

std::vector<conformance::record> run(conformance::test_case const& c, std::string const& transport) {
#if ZOADAM_CONFORMANCE_MPI
  if (transport == "mpi") return conformance::run_mpi(c);
#endif
  return transport == "single" ? conformance::run_single(c) : conformance::run_threads(c);
}

/// All files, on this rank.
bool run_folder(settings const& s, int rank, int ranks) {
  tally result(rank == 0);
  for (auto const& path : files_of(s.folder)) {
    std::string const name = path.stem().string();
    auto const prefix =
        std::find_if(s.skip.begin(), s.skip.end(), [&](auto const& p) { return name.rfind(p, 0) == 0; });
    if (prefix != s.skip.end()) {
      result.skipped(name, *prefix);
      continue;
    }
    try {
      auto const file = safetensors::file::read(path.string());
      if (s.transport != "thread" && file.value<int>("workers") != ranks) {
        result.of_other_size();
        continue;
      }
      conformance::test_case const c(file);
      auto const records = run(c, s.transport);
      if (rank != 0) continue;
      conformance::comparison const compared(c, records);
      if (compared.failures().empty())
        result.passed(name, compared.summary());
      else
        result.failed(name, compared.failures() + " |" + compared.summary());
    } catch (std::exception const& error) {
      result.failed(name, error.what());
    }
  }
  return result.finish(s, ranks);
}

#if ZOADAM_CONFORMANCE_MPI
bool run_under_mpi(settings const& s, int& argc, char**& argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int well = 0;
  // A launcher of another MPI starts separate worlds of one rank.
  char const* const expected = std::getenv("ZOADAM_EXPECTED_RANKS");
  if (expected != nullptr && std::to_string(ranks) != expected)
    std::fprintf(stderr, "zoadam_conformance: %s ranks expected, the world has %d\n", expected, ranks);
  else
    well = run_folder(s, rank, ranks) ? 1 : 0;
  MPI_Bcast(&well, 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Finalize();
  return well != 0;
}
#endif

}  // namespace

int main(int argc, char** argv) {
  try {
    settings const s = parse(argc, argv);
#if ZOADAM_CONFORMANCE_MPI
    if (s.transport == "mpi") return run_under_mpi(s, argc, argv) ? 0 : 1;
#endif
    return run_folder(s, 0, 1) ? 0 : 1;
  } catch (std::invalid_argument const& error) {
    std::fprintf(stderr, "zoadam_conformance: %s\n%s", error.what(), usage);
    return 2;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "zoadam_conformance: %s\n", error.what());
    return 1;
  }
}
