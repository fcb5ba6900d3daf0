// Debian's libgloo-dev omits this header, which Gloo's own headers include. They need only the size
// and meaning of three pointers to an object with a lifetime that its user controls. Each contains
// one standard pointer, as in the library.
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
