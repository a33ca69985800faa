// Runs the first program of a bundle on zeros. Written against menagerie.h, and never yet compiled:
// no Swift compiler was at hand. A test holds its calls against the header.
//
// On a Mac, with menagerie.h and module.modulemap in include/ and the runtime's library beside it:
//
//     swiftc run.swift -I include -L . -o run && ./run bundle roots
import Foundation
import Menagerie

struct RuntimeError: Error, CustomStringConvertible {
  let description: String
}

func check(_ status: menagerie_status) throws {
  guard status == MENAGERIE_OK else {
    throw RuntimeError(description: String(cString: menagerie_last_error()))
  }
}

/// Sizes or strides of a tensor: the C array arrives as a tuple.
func withAxes<T>(_ axes: inout T, _ body: (UnsafeMutableBufferPointer<Int64>) -> Void) {
  withUnsafeMutableBytes(of: &axes) { body($0.bindMemory(to: Int64.self)) }
}

/// Zeros of the lowest sizes that an input may have; the caller frees `data`.
func zeros(_ spec: menagerie_tensor_spec) -> menagerie_tensor {
  var lowest = spec.lowest
  var tensor = menagerie_tensor()
  tensor.dtype = spec.dtype
  tensor.dimensions = spec.dimensions
  var elements: Int64 = 1
  withAxes(&lowest) { least in
    withAxes(&tensor.sizes) { sizes in
      withAxes(&tensor.strides) { strides in
        for axis in (0..<Int(spec.dimensions)).reversed() {
          sizes[axis] = least[axis]
          strides[axis] = elements
          elements *= least[axis]
        }
      }
    }
  }
  tensor.data = calloc(max(Int(elements), 1), 8)  // 8 bytes serve any dtype
  return tensor
}

func run(bundleAt folder: String, trusting trust: String) throws {
  var bundle: OpaquePointer?
  try check(menagerie_bundle_open_signed(folder, trust, &bundle))
  defer { menagerie_bundle_close(bundle) }
  var program: OpaquePointer?
  try check(menagerie_program_open(bundle, menagerie_bundle_program_name(bundle, 0), 0, &program))
  defer { menagerie_program_close(program) }

  var inputs: [menagerie_tensor] = []
  defer { inputs.forEach { free($0.data) } }
  for index in 0..<menagerie_program_input_count(program) {
    var spec = menagerie_tensor_spec()
    try check(menagerie_program_input(program, index, &spec))
    inputs.append(zeros(spec))
  }
  let given = menagerie_program_output_count(program)
  var outputs = [menagerie_tensor](repeating: menagerie_tensor(), count: given)
  try check(menagerie_program_run(program, inputs, inputs.count, &outputs, outputs.count))
  for index in 0..<given {
    var spec = menagerie_tensor_spec()
    try check(menagerie_program_output(program, index, &spec))
    var output = outputs[index]
    var shape: [Int64] = []
    withAxes(&output.sizes) { shape = Array($0.prefix(Int(output.dimensions))) }
    print("\(String(cString: spec.name)): \(shape)")
  }
}

guard CommandLine.arguments.count == 3 else {
  FileHandle.standardError.write(Data("usage: run BUNDLE TRUST\n".utf8))
  exit(2)
}
do {
  try run(bundleAt: CommandLine.arguments[1], trusting: CommandLine.arguments[2])
} catch {
  FileHandle.standardError.write(Data("\(error)\n".utf8))
  exit(1)
}
