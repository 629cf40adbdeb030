// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is broken on purpose, and has to be found by the model.

use super::super::Weakened;
use super::super::writer::Change;

/// What is broken: a name, changes of the header, and an order of the reader that is left out.
pub(super) type Broken = (&'static str, &'static [Change], Weakened);

pub(super) const BROKEN: [Broken; 27] = [
    (
        "what has jumped away is not released",
        &[("RTSCOPE__STORE_RELEASE(ring->settled, head);", "RTSCOPE__STORE(ring->settled, head);")],
        Weakened::Nothing,
    ),
    (
        "a handler takes what it has interrupted for left",
        &[(
            "\tif (stack < open || stack < doubter)\n\t\treturn RTSCOPE__INSIDE;\n\tif (stack == open) {",
            "\tif (stack <= open) {",
        )],
        Weakened::Nothing,
    ),
    (
        "the place of an open record is used again",
        &[(" || rtscope__is_spared(thread, sub_mask, position, tail, at)", "")],
        Weakened::Nothing,
    ),
    (
        "the place of a record that may have been left is used again",
        &[("\tif (place)\n\t\tRTSCOPE__STORE(place->position, position);\n", "")],
        Weakened::Nothing,
    ),
    (
        "the place of a record in a handler is used again",
        &[("event->at = place ? &place->position : NULL;", "event->at = NULL;")],
        Weakened::Nothing,
    ),
    (
        "an event that came in doubt is not noted",
        &[("\t\tRTSCOPE__STORE(thread->doubter, stack);\n", "")],
        Weakened::Nothing,
    ),
    (
        "an event is not noted as open",
        &[("\t\tRTSCOPE__STORE(thread->open, stack);\n", "")],
        Weakened::Nothing,
    ),
    (
        "an event is not open any more before it is complete",
        &[(
            "{\n\trtscope__publish(record);\n",
            "{\n\tif (record.open)\n\t\tRTSCOPE__STORE(*record.open, (uintptr_t)0);\n\trtscope__publish(record);\n",
        )],
        Weakened::Nothing,
    ),
    (
        "a record's word is not released",
        &[(
            "RTSCOPE__STORE_RELEASE(*(uint64_t *)(void *)(record.place - 8), record.word)",
            "RTSCOPE__STORE(*(uint64_t *)(void *)(record.place - 8), record.word)",
        )],
        Weakened::Nothing,
    ),
    (
        "what was given back is not acquired",
        &[("RTSCOPE__LOAD_ACQUIRE(ring->tail)", "RTSCOPE__LOAD(ring->tail)")],
        Weakened::Nothing,
    ),
    ("no fence before a sub-buffer is overwritten", &[("\tRTSCOPE__FENCE_STORES();", "")], Weakened::Nothing),
    (
        "a record is not marked as open",
        &[("record.word | (uint64_t)RTU_OPEN << 16", "record.word")],
        Weakened::Nothing,
    ),
    (
        "the lap is not in the tag",
        &[("((position >> where.shift) + where.key)", "(where.key)")],
        Weakened::Nothing,
    ),
    (
        "the limit forgets what is not given back",
        &[("sub_end < room_end ? sub_end : room_end", "sub_end")],
        Weakened::Nothing,
    ),
    (
        "a full ring is written",
        &[("if (position + need > room_end)\n\t\treturn RTSCOPE__FULL;", "")],
        Weakened::Nothing,
    ),
    ("padding overwrites", &[("if (sub_end > room_end)", "if (0)")], Weakened::Nothing),
    ("no space for the sync record", &[("need += sizeof(struct rtu_sync);", ";")], Weakened::Nothing),
    (
        "a reservation forgets handlers",
        &[(
            "if (RTSCOPE__LIKELY(rtscope__swap(&ring->head, position, position + bytes))) {",
            "RTSCOPE__STORE(ring->head, position + bytes);\n{",
        )],
        Weakened::Nothing,
    ),
    (
        "a slow reservation forgets handlers",
        &[(
            "if (!rtscope__swap(&ring->head, position, position + bytes))\n\t\treturn RTSCOPE__AGAIN;",
            "RTSCOPE__STORE(ring->head, position + bytes);",
        )],
        Weakened::Nothing,
    ),
    (
        "the time is read too early",
        &[(
            "position = RTSCOPE__LOAD(ring->head);\n\t\tnow = rtscope__now(RTSCOPE__LOAD(thread->clock));",
            "now = rtscope__now(RTSCOPE__LOAD(thread->clock));\nposition = RTSCOPE__LOAD(ring->head);",
        )],
        Weakened::Nothing,
    ),
    (
        "a sync record is complete before its content",
        &[(
            "RTSCOPE__COPY(record.place, rest, sizeof(rest));\n\trtscope__publish(record);",
            "rtscope__publish(record);\nRTSCOPE__COPY(record.place, rest, sizeof(rest));",
        )],
        Weakened::Nothing,
    ),
    (
        "the place is read after the reservation",
        &[(
            "\t\t\trtscope__begin(record);\n\t\t\treturn record;",
            "record = rtscope__prepare(rtscope__read_where(thread), position, id, bytes, now);\nrecord.open = &thread->open;\nrtscope__begin(record);\nreturn record;",
        )],
        Weakened::Nothing,
    ),
    (
        "no second look at the ring",
        &[("if (RTSCOPE__LOAD(thread->ring) != ring)\n\t\treturn RTSCOPE__AGAIN;", "")],
        Weakened::Nothing,
    ),
    (
        "the limit of a fork's child stays",
        &[("\t\tRTSCOPE__STORE(thread->limit, 0);\n\t\treturn RTSCOPE__AGAIN;", "")],
        Weakened::Nothing,
    ),
    ("a record's word is not acquired", &[], Weakened::WordAcquire),
    ("what is given back is not released", &[], Weakened::TailRelease),
    ("a snapshot without a fence", &[], Weakened::SnapshotFence),
];
