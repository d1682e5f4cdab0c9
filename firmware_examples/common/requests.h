/* Requests and answers by number; PROTOCOL.md says what each carries. */
#ifndef LN_REQUESTS_H
#define LN_REQUESTS_H

enum { /* an answer has the number of its request, and bit 7 */
    REQUEST_HELLO = 1,
    REQUEST_INFO = 2,
    REQUEST_WRITE = 3,
    REQUEST_RUN = 4,
    REQUEST_READ = 5,
    REQUEST_OPERATORS = 6,
    REQUEST_MEMORY = 7,
    REQUEST_BENCH = 8,
    REQUEST_LOAD = 9,
    REQUEST_PART = 10,
    REQUEST_TRY = 11,
    REQUEST_KEEP = 12,
    REQUEST_FILL = 13
};

enum { /* the first byte of an answer */
    ANSWER_OK = 0,
    ANSWER_UNKNOWN = 1,   /* no such request */
    ANSWER_LENGTH = 2,    /* the payload has another length than that request */
    ANSWER_RANGE = 3,     /* it points outside what there is */
    ANSWER_INPUT = 4,     /* the input is not the one that was meant: write it again */
    ANSWER_RUNTIME = 5,   /* the runtime refuses; its status follows */
    ANSWER_VERSION = 6,   /* the frame has another version */
    ANSWER_NO_SLOT = 7,   /* this board cannot take a model */
    ANSWER_FLASH = 8,     /* erasing or writing failed */
    ANSWER_CHECKSUM = 9,  /* what was loaded is not what was announced */
    ANSWER_TOO_LARGE = 10 /* the model needs more memory than this program lends; three sizes follow */
};

#endif
