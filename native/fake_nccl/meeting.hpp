// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Shared memory in which the seats of one communicator meet, by the name that its id has.

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <signal.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace fake {

constexpr int MOST = 8;
constexpr size_t SLOT = 512 << 10;
constexpr size_t BOX = 16 << 10;

/// What a seat says of its call: seats that differ would hang for ever on a device.
struct Header {
    int kind, type, op, root;
    uint64_t count;
    bool operator==(const Header&) const = default;
};

struct Box {
    std::atomic<uint64_t> full, taken;
    uint64_t bytes;
    char data[BOX];
};

struct Shared {
    std::atomic<int> arrived;
    std::atomic<int> process[MOST];
    std::atomic<uint64_t> posted[MOST], read[MOST];
    Header header[MOST];
    char slot[MOST][SLOT];
    Box box[MOST][MOST];  // [from][to]
};

inline Shared* open_shared(const std::string& name) {
    int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) return nullptr;
    void* at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return at == MAP_FAILED ? nullptr : static_cast<Shared*>(at);
}

/// Whether a process is there and no zombie.
inline bool lives(int process) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE* file = fopen(path, "r");
    if (file == nullptr) return false;
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = 0;
    const char* name_ends = strrchr(text, ')');
    return name_ends != nullptr && name_ends[2] != 'Z' && name_ends[2] != 'X';
}

}  // namespace fake
