/* What each status means, and what to do about it. ln_explain.c adds the particulars of one file.
 *
 * Both switches have no default, so that the compiler names a status that was forgotten. */
#include "ln_cold.h"
#include "ln_internal.h"

const char *ln_status_text(ln_status status)
{
    switch (status) {
    case LN_OK: return "no error";
    case LN_EMPTY_FILE: return "the file is empty";
    case LN_NOT_LITENET: return "the file is not a LiteNet model";
    case LN_IS_LFS_POINTER: return "the file is a git-lfs pointer, not the model it stands for";
    case LN_IS_HTML: return "the file is a web page";
    case LN_IS_ONNX: return "the file is an ONNX model";
    case LN_IS_TFLITE: return "the file is a TensorFlow Lite model";
    case LN_IS_ZIP: return "the file is a zip archive, as .npz checkpoints and PyTorch files are";
    case LN_IS_GZIP: return "the file is compressed with gzip";
    case LN_IS_IMAGE: return "the file is a picture";
    case LN_IS_NUMPY: return "the file is a NumPy array";
    case LN_IS_JSON: return "the file is JSON, as blueprints are";
    case LN_TRUNCATED: return "the file is cut off";
    case LN_EXTRA_BYTES: return "the file goes on after its end";
    case LN_BAD_HEADER_CRC: return "the header is damaged";
    case LN_BAD_BODY_CRC: return "the file is damaged";
    case LN_NEWER_MAJOR: return "the file has a newer format";
    case LN_UNKNOWN_FEATURE: return "the file needs a feature that this LiteNet does not have";
    case LN_BAD_HEADER: return "a header field does not hold";
    case LN_BAD_SECTION: return "a section is not where it should be";
    case LN_BAD_PREPROCESS: return "the preprocessing does not hold";
    case LN_BAD_DTYPE: return "an element type cannot be used";
    case LN_BAD_RANK: return "a tensor has an impossible number of dimensions";
    case LN_BAD_DIM: return "a dimension does not hold";
    case LN_TENSOR_TOO_LARGE: return "a tensor is too large";
    case LN_BAD_FLAGS: return "inputs and outputs are not marked as they should be";
    case LN_BAD_SCALE: return "a quantisation value does not hold";
    case LN_OUTSIDE_ARENA: return "a tensor lies outside the arena";
    case LN_MISALIGNED: return "an offset is not aligned";
    case LN_BAD_LIFETIME: return "the lifetime of a tensor is not true";
    case LN_OVERLAP: return "two tensors share memory while both are needed";
    case LN_UNKNOWN_OP: return "the model has an operator that this LiteNet does not know";
    case LN_BAD_ACTIVATION: return "an operator has an activation that it cannot have";
    case LN_BAD_ALGORITHM: return "an operator asks for an algorithm that this LiteNet does not have";
    case LN_BAD_ATTRIBUTE: return "an attribute of an operator is out of range";
    case LN_BAD_QUANT: return "a rescaling number of an operator is out of range";
    case LN_BAD_TENSOR_INDEX: return "an operator names a tensor that does not exist";
    case LN_BAD_ORDER: return "an operator stands in the wrong place";
    case LN_BAD_SHAPE: return "an operator's output does not have the shape that it computes";
    case LN_BAD_WEIGHTS: return "an operator's weights do not hold";
    case LN_BAD_SCRATCH: return "an operator's scratch memory does not hold";
    case LN_BAD_GOLDEN: return "the golden section does not hold";
    case LN_NULL_POINTER: return "a pointer is NULL, or the model has not been opened";
    case LN_BIN_MISALIGNED: return "the model does not start at a multiple of 4 in memory";
    case LN_ARENA_TOO_SMALL: return "the arena is smaller than ln_arena_bytes says";
    case LN_ARENA_MISALIGNED: return "the arena does not start at a multiple of 16 in memory";
    case LN_BAD_IMAGE_SIZE: return "a picture must have 1 to 65535 rows and columns";
    case LN_BAD_CHANNELS: return "the pixel layout is unknown";
    case LN_NO_PREPROCESS: return "the model's input is not a picture";
    case LN_NO_GOLDEN: return "the file holds no golden inputs to test with";
    case LN_SELFTEST_FAILED: return "an operator computes other values than at export";
    case LN_NOT_FINITE: return "an operator computes values that are not finite";
    case LN_STOPPED: return "the run was ended by its callback";
    case LN_FILE_NOT_FOUND: return "the file does not exist";
    case LN_FILE_UNREADABLE: return "the file cannot be read";
    case LN_FILE_TOO_LARGE: return "the file is larger than memory, or than the 4 GB that the format allows";
    case LN_FILE_CHANGED: return "the file was cut short or written over while it was in use";
    case LN_BEYOND_LIMITS: return "the model is larger than this build of LiteNet was made for";
    case LN_INPUT_NOT_FINITE: return "the input holds NaN or infinity, so there is no answer";
    }
    return "an unknown status";
}

const char *ln_remedy(ln_status status)
{
    switch (status) {
    case LN_OK: return "";
    case LN_EMPTY_FILE: case LN_TRUNCATED: return "Copy or download it again.";
    case LN_EXTRA_BYTES: return "Was something appended, or two files joined? Copy or download it again.";
    case LN_NOT_LITENET: return "Give a .bin that edge-export has written.";
    case LN_IS_LFS_POINTER: return "Run `git lfs pull`, which fetches the model.";
    case LN_IS_HTML: return "The download gave an error or login page: open the address in a browser.";
    case LN_IS_ONNX: return "Import it with edge-export first.";
    case LN_IS_TFLITE: return "Convert it with edge-export first.";
    case LN_IS_ZIP: return "Turn the checkpoint into a .bin with edge-export.";
    case LN_IS_GZIP: return "Unpack it with gunzip.";
    case LN_IS_IMAGE: return "Model and picture may be swapped: the model comes first.";
    case LN_IS_NUMPY: return "Weights alone are no model: export the checkpoint with edge-export.";
    case LN_IS_JSON: return "Train it with edge-train, then export it with edge-export.";
    case LN_BAD_HEADER_CRC: case LN_BAD_BODY_CRC:
        return "Bytes were changed on the way or on the disk: copy or download it again.";
    case LN_NEWER_MAJOR: case LN_UNKNOWN_FEATURE: case LN_UNKNOWN_OP: case LN_BAD_ALGORITHM:
        return "Install a newer LiteNet, or export the model for this one.";
    case LN_BAD_HEADER: case LN_BAD_SECTION: case LN_BAD_PREPROCESS: case LN_BAD_DTYPE: case LN_BAD_RANK:
    case LN_BAD_DIM: case LN_TENSOR_TOO_LARGE: case LN_BAD_FLAGS: case LN_BAD_SCALE: case LN_OUTSIDE_ARENA:
    case LN_MISALIGNED: case LN_BAD_LIFETIME: case LN_OVERLAP: case LN_BAD_ACTIVATION: case LN_BAD_ATTRIBUTE:
    case LN_BAD_QUANT: case LN_BAD_TENSOR_INDEX: case LN_BAD_ORDER: case LN_BAD_SHAPE: case LN_BAD_WEIGHTS: case LN_BAD_SCRATCH:
    case LN_BAD_GOLDEN:
        return "The checksums are right, so it was written like this: export the model again.";
    case LN_NULL_POINTER: return "Call ln_open first, and give it and ln_run every buffer.";
    case LN_BIN_MISALIGNED: return "Align the array that holds it, to 64 where possible.";
    case LN_ARENA_TOO_SMALL: return "Give ln_arena_bytes(m) bytes.";
    case LN_ARENA_MISALIGNED: return "Align it to 16, as malloc does on most machines.";
    case LN_BAD_IMAGE_SIZE: return "Cut or shrink the picture.";
    case LN_BAD_CHANNELS: return "Give one of LN_GRAY to LN_BGRA.";
    case LN_NO_PREPROCESS: return "Give its numbers to ln_run directly.";
    case LN_NO_GOLDEN: return "Export the model with golden inputs.";
    case LN_SELFTEST_FAILED: case LN_NOT_FINITE:
        return "Check the memory of this device and the compiler's flags (no -ffast-math).";
    case LN_STOPPED: return "Call ln_run again to start over.";
    case LN_FILE_NOT_FOUND: return "Check the path.";
    case LN_FILE_UNREADABLE: return "Check its permissions, and that it is a file, not a folder.";
    case LN_FILE_TOO_LARGE: return "Export a smaller model.";
    case LN_FILE_CHANGED: return "Open it again; write new versions beside it and rename them.";
    case LN_BEYOND_LIMITS:
        return "Export a smaller model, or build with a larger LN_MOST_OPS or LN_MOST_ARENA.";
    case LN_INPUT_NOT_FINITE: return "Look where the numbers come from: a division by zero, a sensor that failed?";
    }
    return "";
}

#include "ln_cold_end.h"
