// SPDX-License-Identifier: Apache-2.0
/* Times MPI_Allreduce (f32 sum, in place) as bench/collectives does every other arm.
 *
 *     mpirun -n RANKS mpi_allreduce BYTES SAMPLES BATCH [BYTES SAMPLES BATCH ...]
 *
 * A sample is BATCH calls in a row, divided; the warm-up is that of timing.py.
 * One line a size: bytes, median and mean microseconds of the slowest rank. Exit status 1 if a
 * result is wrong. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void all_reduce(float *data, int count) {
    MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void fill(float *data, int count, float value) {
    for (int i = 0; i < count; ++i) data[i] = value;
}

static void check(float *data, int count, int rank, int ranks) {
    fill(data, count, (float)(rank + 1));
    all_reduce(data, count);
    for (int i = 0; i < count; ++i)
        if (data[i] != (float)(ranks * (ranks + 1) / 2)) MPI_Abort(MPI_COMM_WORLD, 1);
}

static void measure(long bytes, int samples, int batch, int rank, int ranks) {
    const int count = (int)(bytes / (long)sizeof(float));
    float *data = malloc((size_t)bytes);
    double *took = malloc((size_t)samples * sizeof(double));
    double spent[2] = {0, 0}, slowest[2];
    if (!data || !took) MPI_Abort(MPI_COMM_WORLD, 1);
    check(data, count, rank, ranks);
    fill(data, count, 0);
    for (int i = 0; i < batch; ++i) all_reduce(data, count);
    for (int i = 0; i < samples; ++i) {
        const double before = MPI_Wtime();
        for (int j = 0; j < batch; ++j) all_reduce(data, count);
        took[i] = (MPI_Wtime() - before) * 1e6 / batch;
        spent[1] += took[i] / samples;
    }
    qsort(took, (size_t)samples, sizeof(double), ascending);
    spent[0] = (took[(samples - 1) / 2] + took[samples / 2]) / 2;
    MPI_Reduce(spent, slowest, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%ld %.3f %.3f\n", bytes, slowest[0], slowest[1]);
    free(took);
    free(data);
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 1; i + 2 < argc; i += 3)
        measure(atol(argv[i]), atoi(argv[i + 1]), atoi(argv[i + 2]), rank, ranks);
    MPI_Finalize();
    return 0;
}
