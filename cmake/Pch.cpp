// Precompiled once for every source without MLIR (cmake/ZorsePch.cmake): what most of them include. Only headers of libraries and of the schema stand
// here, so that a change to the project's own recompiles no more than before; every source still includes what it uses.
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
