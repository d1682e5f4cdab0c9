/* The register tiles of ln_panels.c, which includes this file once for each type of stored weight: no include guard.
 *
 *     sum[m][j] += over the spans, over k: x[m][k] * w[k][j]        sum has rows of LN_PANEL floats
 *
 * TILE(shape)           name of the function, such as TILE(4x8): 4 rows, 8 columns
 * WEIGHT                float or uint16_t
 * LOAD4(w), LOAD8(w)    weights as vectors
 * SUM8(s), STORE8(s,v)  sums, in the order of LOAD8
 * w steps `width` weights from one k to the next. Each function keeps its sums in registers from first to last. */

static void TILE(4x8)(float *sum, const ln_spans *list, const WEIGHT *w, size_t width)
{
    ln_vec8 s0 = SUM8(sum), s1 = SUM8(sum + LN_PANEL), s2 = SUM8(sum + 2 * LN_PANEL), s3 = SUM8(sum + 3 * LN_PANEL);
    for (uint32_t i = 0; i < list->count; i++) {
        const ln_span *s = &list->span[i];
        const float *x0 = s->x[0], *x1 = s->x[1], *x2 = s->x[2], *x3 = s->x[3];
        for (uint32_t k = 0; k < s->n; k++, w += width) {
            const ln_vec8 v = LOAD8(w);
            s0 = ln_mac8(s0, x0[k], v);
            s1 = ln_mac8(s1, x1[k], v);
            s2 = ln_mac8(s2, x2[k], v);
            s3 = ln_mac8(s3, x3[k], v);
        }
    }
    STORE8(sum, s0);
    STORE8(sum + LN_PANEL, s1);
    STORE8(sum + 2 * LN_PANEL, s2);
    STORE8(sum + 3 * LN_PANEL, s3);
}

static void TILE(4x4)(float *sum, const ln_spans *list, const WEIGHT *w, size_t width)
{
    ln_vec4 s0 = ln_load4(sum), s1 = ln_load4(sum + LN_PANEL);
    ln_vec4 s2 = ln_load4(sum + 2 * LN_PANEL), s3 = ln_load4(sum + 3 * LN_PANEL);
    for (uint32_t i = 0; i < list->count; i++) {
        const ln_span *s = &list->span[i];
        const float *x0 = s->x[0], *x1 = s->x[1], *x2 = s->x[2], *x3 = s->x[3];
        for (uint32_t k = 0; k < s->n; k++, w += width) {
            const ln_vec4 v = LOAD4(w);
            s0 = ln_mac4(s0, x0[k], v);
            s1 = ln_mac4(s1, x1[k], v);
            s2 = ln_mac4(s2, x2[k], v);
            s3 = ln_mac4(s3, x3[k], v);
        }
    }
    ln_store4(sum, s0);
    ln_store4(sum + LN_PANEL, s1);
    ln_store4(sum + 2 * LN_PANEL, s2);
    ln_store4(sum + 3 * LN_PANEL, s3);
}

static void TILE(1x16)(float *sum, const ln_spans *list, const WEIGHT *w, size_t width)
{
    ln_vec8 s0 = SUM8(sum), s1 = SUM8(sum + 8);
    for (uint32_t i = 0; i < list->count; i++) {
        const ln_span *s = &list->span[i];
        const float *x = s->x[0];
        for (uint32_t k = 0; k < s->n; k++, w += width) {
            s0 = ln_mac8(s0, x[k], LOAD8(w));
            s1 = ln_mac8(s1, x[k], LOAD8(w + 8));
        }
    }
    STORE8(sum, s0);
    STORE8(sum + 8, s1);
}

static void TILE(1x4)(float *sum, const ln_spans *list, const WEIGHT *w, size_t width)
{
    ln_vec4 s0 = ln_load4(sum);
    for (uint32_t i = 0; i < list->count; i++) {
        const ln_span *s = &list->span[i];
        const float *x = s->x[0];
        for (uint32_t k = 0; k < s->n; k++, w += width) s0 = ln_mac4(s0, x[k], LOAD4(w));
    }
    ln_store4(sum, s0);
}
