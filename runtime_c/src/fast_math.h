/* Parts of vectors; activations and exponentials: the formulas of ln_math.h, LANES at a time, with fused
 * multiply-adds. Part of fast_kernels.h. A comparison gives all ones in the lanes where it holds. */

INLINE vf either(vi where, vf a, vf b)
{
    return (vf)((where & (vi)a) | (~where & (vi)b));
}

INLINE vi splat_bits(int32_t bits)
{
    return (vi){0} + bits;
}

INLINE vf magnitude(vf x)
{
    return (vf)((vi)x & splat_bits(0x7FFFFFFF));
}

INLINE vf with_sign(vf x, vf sign)
{
    const vi top = splat_bits(-0x7FFFFFFF - 1);
    return (vf)(((vi)x & ~top) | ((vi)sign & top));
}

INLINE vf larger(vf a, vf b) /* where either is NaN: NaN */
{
#ifdef LARGER
    return LARGER(a, b);
#else
    return either((b > a) | (b != b), b, a);
#endif
}

INLINE vf load_some(const float *x, size_t n) /* the first n, at most LANES; the rest zero */
{
    if (n >= LANES) return LOAD(x);
#ifdef LOAD_FIRST
    return LOAD_FIRST(x, n);
#else
    float t[LANES];
    for (size_t i = 0; i < LANES; i++) t[i] = i < n ? x[i] : 0.0f;
    return LOAD(t);
#endif
}

INLINE void store_some(float *y, vf v, size_t n)
{
    if (n >= LANES) {
        STORE(y, v);
        return;
    }
#ifdef STORE_FIRST
    STORE_FIRST(y, v, n);
#else
    float t[LANES];
    STORE(t, v);
    for (size_t i = 0; i < n; i++) y[i] = t[i];
#endif
}

#define POLY(p, x, c) MADD(p, x, SPLAT(c))

HEAVY vf exp_of(vf x)
{
    vf c = either(x > SPLAT(-104.0f), x, SPLAT(-104.0f));
    c = either(c < SPLAT(89.0f), c, SPLAT(89.0f));
    const vi n = __builtin_convertvector(MADD(c, SPLAT(1.44269504f), with_sign(SPLAT(0.5f), c)), vi);
    const vf whole = __builtin_convertvector(n, vf);
    vf r = MADD(whole, SPLAT(-0.693145752f), c);
    r = MADD(whole, SPLAT(-1.42860682e-6f), r);

    vf p = SPLAT(0.00138477189f);
    p = POLY(p, r, 0.00836782064f);
    p = POLY(p, r, 0.0416682251f);
    p = POLY(p, r, 0.166665226f);
    p = POLY(p, r, 0.49999994f);
    p = SPLAT(1.0f) + MADD(r * r, p, r);

    const vi biased = n + 256, half = biased >> 1;
    const vf y = p * (vf)((half - 1) << 23) * (vf)((biased - half - 1) << 23);
    return either(x == x, y, x);
}

HEAVY vf sigmoid_of(vf x)
{
    const vf e = exp_of(-magnitude(x));
    return SPLAT(1.0f) / (SPLAT(1.0f) + e) * either(x < SPLAT(0.0f), e, SPLAT(1.0f));
}

HEAVY vf tanh_of(vf x)
{
    const vf a = magnitude(x), s = x * x, e = exp_of(a + a);
    vf p = SPLAT(-0.00569486059f);
    p = POLY(p, s, 0.0206300691f);
    p = POLY(p, s, -0.0537369512f);
    p = POLY(p, s, 0.133314088f);
    p = POLY(p, s, -0.333332807f);
    const vf near = MADD(a * s, p, a), far = SPLAT(1.0f) - SPLAT(2.0f) / (e + SPLAT(1.0f));
    return with_sign(either(a < SPLAT(0.625f), near, far), x);
}

HEAVY vf erf_of(vf x)
{
    const vf a = magnitude(x), b = either(a < SPLAT(4.0f), a, SPLAT(4.0f)), s = x * x;
    vf q = SPLAT(-0.000197292175f);
    q = POLY(q, b, 0.00305669592f);
    q = POLY(q, b, -0.0222814251f);
    q = POLY(q, b, 0.104046322f);
    q = POLY(q, b, 0.637049615f);
    q = POLY(q, b, 1.12775552f);
    q = POLY(q, b, 0.000176069647f);
    const vf e = exp_of(-q);

    vf p = SPLAT(-0.000606623187f);
    p = POLY(p, s, 0.00500691636f);
    p = POLY(p, s, -0.0267751478f);
    p = POLY(p, s, 0.11282023f);
    p = POLY(p, s, -0.376125097f);
    p = POLY(p, s, 0.128379151f);
    const vf near = MADD(a, p, a), far = either(x == x, SPLAT(1.0f) - e, x);
    return with_sign(either(a < SPLAT(0.9f), near, far), x);
}

#define ACT_OF(name, formula)                        \
    static void name(float *v, size_t n, float alpha) \
    {                                                \
        (void)alpha;                                 \
        for (size_t i = 0; i < n; i += LANES) {      \
            const vf h = LOAD(v + i);                \
            STORE(v + i, formula);                   \
        }                                            \
    }
ACT_OF(act_relu, ABOVE(SPLAT(0.0f), h))
ACT_OF(act_relu6, BELOW(SPLAT(6.0f), ABOVE(SPLAT(0.0f), h)))
ACT_OF(act_leaky_relu, h * either(h > SPLAT(0.0f), SPLAT(1.0f), SPLAT(alpha)))
ACT_OF(act_hard_swish, h * (BELOW(SPLAT(6.0f), ABOVE(SPLAT(0.0f), h + SPLAT(3.0f))) / SPLAT(6.0f)))
ACT_OF(act_sigmoid, sigmoid_of(h))
ACT_OF(act_tanh, tanh_of(h))
ACT_OF(act_silu, h * sigmoid_of(h))
ACT_OF(act_gelu, SPLAT(0.5f) * h * (SPLAT(1.0f) + erf_of(h * SPLAT(0.707106781f))))
ACT_OF(act_gelu_tanh,
       SPLAT(0.5f) * h * (SPLAT(1.0f) + tanh_of(SPLAT(0.797884561f) * MADD(SPLAT(0.044715f) * h * h, h, h))))

/* v[i] = activation(v[i]) for i < n, a multiple of LANES */
static void activate(uint32_t act, float alpha, float *v, size_t n)
{
    switch (act) {
    case LN_ACT_RELU: act_relu(v, n, alpha); break;
    case LN_ACT_RELU6: act_relu6(v, n, alpha); break;
    case LN_ACT_LEAKY_RELU: act_leaky_relu(v, n, alpha); break;
    case LN_ACT_HARD_SWISH: act_hard_swish(v, n, alpha); break;
    case LN_ACT_SIGMOID: act_sigmoid(v, n, alpha); break;
    case LN_ACT_TANH: act_tanh(v, n, alpha); break;
    case LN_ACT_SILU: act_silu(v, n, alpha); break;
    case LN_ACT_GELU: act_gelu(v, n, alpha); break;
    case LN_ACT_GELU_TANH: act_gelu_tanh(v, n, alpha); break;
    }
}

/* The same for any n, also where what follows may not be read. */
static void activate_any(uint32_t act, float alpha, float *v, size_t n)
{
    float t[LANES];
    const size_t whole = n / LANES * LANES;
    activate(act, alpha, v, whole);
    if (whole == n) return;
    STORE(t, load_some(v + whole, n - whole));
    activate(act, alpha, t, LANES);
    store_some(v + whole, LOAD(t), n - whole);
}
