// The tensors of one layer, gathered from one file or from the shards of a set, under names without their common prefix.
#pragma once

#include <map>
#include <set>

#include "runtime/files/safetensors.hpp"
#include "w4moe/weights.hpp"

namespace w4moe {

/// The type of a file's tensor as weight preparation knows it; errors name the tensor.
Result<SourceType> source_type_of(const FileTensor& tensor);

/// Length of the prefix with "experts." if the name is that of a routed expert's tensor, else 0.
std::size_t expert_prefix_length(std::string_view name);

/// A layer's prefix as people write it, with "experts." at its end.
std::string normal_expert_prefix(std::string_view prefix);

class TensorTable {
 public:
  /// The tensors of one layer that the caller has found: their names begin with `prefix`. A name that comes twice is an error.
  static Result<TensorTable> of_layer(std::string prefix, const std::vector<const FileTensor*>& tensors);

  /// Finds the layer in the files. `prefix` may be empty if they hold one layer only; "model.layers.3.mlp" and the same with a dot
  /// or with "experts." at its end all name one layer. Errors list the layers there are.
  static Result<TensorTable> find_layer(const std::vector<SafetensorsFile>& files, std::string_view prefix);

  const std::string& prefix() const { return prefix_; }  ///< up to and with "experts."

  /// A tensor by its name behind the prefix, or null. Found ones count as used.
  const FileTensor* find(const std::string& name);
  bool has(const std::string& name) const { return tensors_.count(name) != 0; }

  /// The same, where it must exist; errors name it in full.
  Result<const FileTensor*> require(const std::string& name);

  /// As require(), with this shape; `types` are the accepted dtypes as files spell them.
  Result<const FileTensor*> require(const std::string& name, const std::vector<i64>& shape, const std::vector<std::string_view>& types);

  /// Marks a tensor that is known and does not matter here.
  void ignore(const std::string& name) { used_.insert(name); }

  /// An error naming a tensor of the layer that nothing used, or success.
  Status all_used() const;

  /// Names behind the prefix, ascending.
  const std::map<std::string, const FileTensor*>& tensors() const { return tensors_; }

  Error fault(const std::string& name, const std::string& what) const;

 private:
  std::string prefix_;
  std::map<std::string, const FileTensor*> tensors_;
  std::set<std::string> used_;
};

}  // namespace w4moe
