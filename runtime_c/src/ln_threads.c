/* Threads for machines with an operating system. Not part of the core. Between jobs, and while others still work on
 * the last parts of theirs, everyone sleeps: a waiting thread costs nothing. */
#if !defined(_WIN32) && !defined(__wasm__)
#define _POSIX_C_SOURCE 200112L
#endif
#include "litenet_fast.h"

#if !defined(_WIN32) && !defined(__wasm__)

#include <pthread.h>
#include <stdlib.h>

typedef struct threads {
    ln_pool pool;
    pthread_mutex_t lock; /* over all that follows */
    pthread_cond_t work, done;
    void (*part)(void *job, uint32_t index, uint32_t worker);
    void *job;
    uint32_t parts, next, unfinished; /* of the job; next: not yet taken */
    uint32_t started;                 /* threads, besides the caller's */
    int busy, stop;
    pthread_t *thread;
} threads;

typedef struct named { /* a thread and its number */
    threads *all;
    uint32_t worker;
} named;

/* Take parts until there are none. The lock is held, but not while a part is worked on. */
static void take_parts(threads *t, uint32_t worker)
{
    while (t->next < t->parts) {
        const uint32_t index = t->next++;
        pthread_mutex_unlock(&t->lock);
        t->part(t->job, index, worker); /* the job stays as it is while a part of it is unfinished */
        pthread_mutex_lock(&t->lock);
        if (--t->unfinished == 0) pthread_cond_signal(&t->done);
    }
}

static void *live(void *argument)
{
    named *self = argument;
    threads *t = self->all;
    const uint32_t worker = self->worker;
    free(self);
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        take_parts(t, worker);
        if (!t->stop) pthread_cond_wait(&t->work, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void run(ln_pool *pool, uint32_t parts, void (*part)(void *job, uint32_t index, uint32_t worker), void *job)
{
    threads *t = (threads *)(void *)pool;
    pthread_mutex_lock(&t->lock);
    if (t->busy) { /* with another caller's job */
        pthread_mutex_unlock(&t->lock);
        for (uint32_t i = 0; i < parts; i++) part(job, i, 0);
        return;
    }
    t->busy = 1;
    t->part = part;
    t->job = job;
    t->next = 0;
    t->parts = t->unfinished = parts;
    for (uint32_t i = 1; i < parts && i <= t->started; i++) pthread_cond_signal(&t->work);
    take_parts(t, 0);
    while (t->unfinished) pthread_cond_wait(&t->done, &t->lock);
    t->busy = 0;
    pthread_mutex_unlock(&t->lock);
}

ln_pool *ln_threads_start(uint32_t count)
{
    threads *t = calloc(1, sizeof *t);
    if (t == NULL) return NULL;
    t->thread = calloc(count ? count : 1, sizeof *t->thread);
    if (t->thread == NULL) {
        free(t);
        return NULL;
    }
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    pthread_cond_init(&t->done, NULL);
    t->pool.run = run;
    while (t->started + 1 < count) { /* with fewer than asked for, if the system gives no more */
        named *self = malloc(sizeof *self);
        if (self == NULL) break;
        self->all = t;
        self->worker = t->started + 1;
        if (pthread_create(&t->thread[t->started], NULL, live, self) != 0) {
            free(self);
            break;
        }
        t->started++;
    }
    t->pool.threads = t->started + 1;
    return &t->pool;
}

void ln_threads_stop(ln_pool *pool)
{
    threads *t = (threads *)(void *)pool;
    if (t == NULL) return;
    pthread_mutex_lock(&t->lock);
    t->stop = 1;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->lock);
    for (uint32_t i = 0; i < t->started; i++) pthread_join(t->thread[i], NULL);
    pthread_cond_destroy(&t->done);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->lock);
    free(t->thread);
    free(t);
}

#else

ln_pool *ln_threads_start(uint32_t count)
{
    (void)count;
    return NULL; /* one thread it is */
}

void ln_threads_stop(ln_pool *pool)
{
    (void)pool;
}

#endif
