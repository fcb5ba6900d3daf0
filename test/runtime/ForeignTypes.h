// Types of a foreign header as our own declarations of its library spell them: enumerations are int, handles are void *. A test gives `Plain` what
// else differs.
#pragma once

#include <type_traits>

namespace zorse::runtime::test {

/// The type that is ours for `T`, which is no pointer to a function.
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

/// Whether a declaration of ours is the foreign one in every type.
template <typename Foreign, typename Ours> constexpr bool isDeclarationOf = std::is_same_v<typename Function<Foreign>::Type, Ours>;

} // namespace zorse::runtime::test
