// Debian's libgloo-dev leaves out one header that Gloo's own headers include. What those need of it is the size and the meaning of three pointers to
// an object whose life its user controls: each holds one standard pointer, as in the library.
#pragma once

#include <memory>

namespace gloo {

template <typename T> class NonOwningPtr final {
  std::shared_ptr<T> held_;
};

template <typename T> class WeakNonOwningPtr final {
  std::weak_ptr<T> held_;
};

template <typename T> class ShareableNonOwningPtr final {
  std::shared_ptr<T> held_;
};

} // namespace gloo
