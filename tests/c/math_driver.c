/* Measures ln_math.h for tests/test_c_math.py:
 *
 *   math_driver error FUNCTION STEP START    every STEP-th float32 from bit pattern START on: prints the largest error
 *                                            in ulps of the result, and where
 *   math_driver values FUNCTION X...         prints the function at each X
 *   math_driver halves                       prints ln_f16 of all 65536 patterns, as bits
 * The truth is the C library in double precision. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ln_math.h"

static double true_exp(double x) { return exp(x); }
static double true_tanh(double x) { return tanh(x); }
static double true_erf(double x) { return erf(x); }
static double true_sqrt(double x) { return sqrt(x); }

static double true_sigmoid(double x)
{
    const double e = exp(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

static double ulp(double y) /* from one float32 to the next at y */
{
    int exponent;
    (void)frexp(y, &exponent);
    return ldexp(1.0, exponent < -125 ? -149 : exponent - 24);
}

/* How far `got` is from `want`. A correctly rounded result counts as 0, so that infinity and NaN need no rule. */
static double error_of(float got, double want)
{
    const float rounded = (float)want;
    if (got == rounded || (got != got && want != want)) return 0;
    const double error = fabs((double)got - want) / ulp(want);
    return error == error ? error : HUGE_VAL;
}

static float (*volatile pointer)(float); /* the same code as in kernels, called one by one */

static int measure(float (*function)(float), double (*truth)(double), uint64_t step, uint64_t start)
{
    double worst = 0;
    float at = 0;
    pointer = function;
    for (uint64_t bits = start; bits < (uint64_t)1 << 32; bits += step) {
        const float x = ln_from_bits((uint32_t)bits);
        const double error = error_of(pointer(x), truth((double)x));
        if (error > worst) {
            worst = error;
            at = x;
        }
    }
    printf("%.9g %.9g\n", worst, (double)at);
    return 0;
}

static const struct {
    const char *name;
    float (*function)(float);
    double (*truth)(double);
} FUNCTIONS[] = {
    {"exp", ln_expf, true_exp},    {"tanh", ln_tanhf, true_tanh},          {"erf", ln_erff, true_erf},
    {"sqrt", ln_sqrtf, true_sqrt}, {"sigmoid", ln_sigmoidf, true_sigmoid},
};

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "halves") == 0) {
        for (uint32_t h = 0; h < 65536; h++) printf("%u\n", (unsigned)ln_to_bits(ln_f16((uint16_t)h)));
        return 0;
    }
    for (size_t i = 0; argc > 2 && i < sizeof FUNCTIONS / sizeof FUNCTIONS[0]; i++) {
        if (strcmp(argv[2], FUNCTIONS[i].name) != 0) continue;
        if (argc == 5 && strcmp(argv[1], "error") == 0)
            return measure(FUNCTIONS[i].function, FUNCTIONS[i].truth, strtoull(argv[3], NULL, 0),
                           strtoull(argv[4], NULL, 0));
        for (int k = 3; k < argc; k++) printf("%.9g\n", (double)FUNCTIONS[i].function(strtof(argv[k], NULL)));
        return 0;
    }
    return 2;
}
