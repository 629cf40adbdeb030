// SPDX-License-Identifier: Apache-2.0 OR MIT
// Perfetto's own engine (trace_processor as WebAssembly) under Node, for tests.
//
//     node perfetto.js DIRECTORY TRACE SQL...
//
// DIRECTORY has engine_bundle.js and trace_processor.wasm, as Perfetto's user interface ships them. The bundle is a web worker: it
// is given the few things of a browser that it uses, and a port through which it is asked in its own protocol
// (TraceProcessorRpcStream). For each query a line of JSON: an array of rows.
'use strict';
const fs = require('fs');
const path = require('path');
const [directory, trace, ...queries] = process.argv.slice(2);
const file = (name) => fs.readFileSync(path.join(directory, path.basename(name)));

// ---- Protocol Buffers -------------------------------------------------------------------------------------------------------

function varint(number) {
    const bytes = [];
    let rest = BigInt(number);
    for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
    bytes.push(Number(rest));
    return Buffer.from(bytes);
}
const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const message = (field, bytes) => Buffer.concat([varint((field << 3) | 2), varint(bytes.length), bytes]);

class Reader {
    constructor(bytes) {
        this.bytes = bytes;
        this.at = 0;
    }
    varint() {
        let value = 0n;
        for (let shift = 0n; ; shift += 7n) {
            const byte = this.bytes[this.at++];
            value |= BigInt(byte & 127) << shift;
            if (byte < 128) return value;
        }
    }
    take(length) {
        this.at += length;
        return this.bytes.subarray(this.at - length, this.at);
    }
}
function* fields(bytes) {
    const reader = new Reader(bytes);
    while (reader.at < bytes.length) {
        const tag = Number(reader.varint());
        const kind = tag & 7;
        if (kind === 0) yield [tag >> 3, reader.varint()];
        else yield [tag >> 3, reader.take(kind === 2 ? Number(reader.varint()) : kind === 1 ? 8 : 4)];
    }
}
function* packed(bytes) {
    const reader = new Reader(bytes);
    while (reader.at < bytes.length) yield BigInt.asIntN(64, reader.varint());
}

// ---- The engine -------------------------------------------------------------------------------------------------------------

const worker = { location: { href: 'file:///' } };
globalThis.WorkerGlobalScope = function () {};
class Request {
    open(_, name) {
        this.name = name;
    }
    send() {
        this.response = new Uint8Array(file(this.name)).buffer;
        this.status = 200;
    }
}
let answers = [];
const port = { postMessage: (bytes) => answers.push(Buffer.from(bytes)) };
new Function('self', 'process', 'location', 'XMLHttpRequest', file('engine_bundle.js').toString())(
    worker, undefined, worker.location, Request);
worker.onmessage({ data: port });

function send(request) {
    answers = [];
    port.onmessage({ data: new Uint8Array(message(1, request)) });
    return Buffer.concat(answers);
}
const APPEND = 1, FINALIZE = 2, QUERY = 3;

// A batch: kinds of the cells, then the values of each kind, in order.
function cells(batch) {
    const kinds = [], integers = [], doubles = [];
    let texts = [];
    for (const [field, value] of fields(batch)) {
        if (field === 1) kinds.push(...value);
        else if (field === 2) integers.push(...(typeof value === 'bigint' ? [value] : packed(value)));
        else if (field === 3) doubles.push(...Array.from({ length: value.length / 8 }, (_, i) => value.readDoubleLE(8 * i)));
        else if (field === 5) texts = value.toString().split('\0');
    }
    return kinds.map((kind) => (kind === 2 ? integers.shift() : kind === 3 ? doubles.shift() : kind === 4 ? texts.shift() : null));
}

function query(sql) {
    const all = [];
    let columns = 0, error = '';
    for (const [, rpc] of fields(send(Buffer.concat([number(2, QUERY), message(103, message(1, Buffer.from(sql)))])))) {
        for (const [field, result] of fields(rpc)) {
            if (field !== 203) continue;
            for (const [part, value] of fields(result)) {
                if (part === 1) columns += 1;
                else if (part === 2) error += value;
                else if (part === 3) all.push(...cells(value));
            }
        }
    }
    if (error) throw new Error(`${sql}: ${error}`);
    const rows = [];
    for (let at = 0; at < all.length; at += columns) rows.push(all.slice(at, at + columns));
    return rows;
}

// Numbers keep all their digits.
const json = (cell) => (typeof cell === 'bigint' ? cell.toString() : JSON.stringify(cell));

async function main() {
    for (;;) {
        // The engine starts by itself, and answers when it has.
        await new Promise((resolve) => setImmediate(resolve));
        try {
            query('select 1');
            break;
        } catch (error) {
            if (process.uptime() > 60) throw error;
        }
    }
    const PIECE = 1 << 24;
    const input = fs.openSync(trace);
    const buffer = Buffer.alloc(PIECE);
    for (let length; (length = fs.readSync(input, buffer)) > 0; ) {
        send(Buffer.concat([number(2, APPEND), message(101, buffer.subarray(0, length))]));
    }
    send(number(2, FINALIZE));
    for (const sql of queries) {
        process.stdout.write(`[${query(sql).map((row) => `[${row.map(json).join(',')}]`).join(',')}]\n`);
    }
    process.exitCode = 0;
}
main().then(() => process.stdout.write('', () => process.exit()), (error) => {
    console.error(error);
    process.exit(1);
});
