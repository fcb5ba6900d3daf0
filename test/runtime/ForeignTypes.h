// Maps the types of a foreign header to the types of our own declarations of its library:
// enumerations become int, handles become void *. A test specializes `Plain` for other differences.
#pragma once

#include <type_traits>

namespace zorse::runtime::test {

/// Our type for `T`. `T` is not a pointer to a function.
template <typename T> struct Plain {
  using Type = std::conditional_t<std::is_enum_v<T>, int, T>;
};

template <typename T> struct Spelled {
  using Type = typename Plain<T>::Type;
};
template <typename T> struct Spelled<const T> {
  using Type = const typename Spelled<T>::Type;
};
template <typename T> struct Spelled<T *> {
  using Type = std::conditional_t<std::is_function_v<T>, T, typename Spelled<T>::Type> *;
};

template <typename T> struct Function;
template <typename Result, typename... Parameters> struct Function<Result (*)(Parameters...)> {
  using Type = typename Spelled<Result>::Type (*)(typename Spelled<Parameters>::Type...);
};

/// Whether our declaration matches the foreign one in every type.
template <typename Foreign, typename Ours>
constexpr bool isDeclarationOf = std::is_same_v<typename Function<Foreign>::Type, Ours>;

} // namespace zorse::runtime::test
