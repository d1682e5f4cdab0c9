/* In the modules with vectors, operators that have a kernel for them have no other form: the core's names lead there.
 * The Makefile leaves their portable form out. */
#include "fast.h"

#define ONLY(name, NAME) \
    void ln_##name##_run(const ln_call *c) { ln_kernels_wasm.run[LN_OP_##NAME](c); }

ONLY(activation, ACTIVATION)
ONLY(add, ADD)
ONLY(avgpool2d, AVGPOOL2D)
ONLY(batchnorm, BATCHNORM)
ONLY(global_avg_pool, GLOBAL_AVG_POOL)
ONLY(layernorm, LAYERNORM)
ONLY(maxpool2d, MAXPOOL2D)
ONLY(prelu, PRELU)
ONLY(softmax, SOFTMAX)
