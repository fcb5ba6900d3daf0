// Precompiled header of all sources without MLIR (cmake/ZorsePch.cmake): headers that most of them
// include. It contains only headers of libraries and of the schema, so that changes of project
// headers do not recompile more sources. Every source still includes the headers that it uses.
#include "bundle.pb.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>
