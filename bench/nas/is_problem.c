/*
 * Problem of NAS kernel IS.  See is_problem.h.
 */
#include "nas/is_problem.h"

#include "common/random.h"

#define SEED UINT64_C(314159265)
#define CHUNK 1024 /* keys drawn after one jump, at most */

const struct is_class is_classes[CLASS_COUNT] = {
    [CLASS_S] = {16, 11, 9,
                 {{48427, 0, 1}, {17148, 18, 1}, {23627, 346, 1}, {62548, 64917, -1},
                  {4431, 65463, -1}}},
    [CLASS_W] = {20, 16, 10,
                 {{357773, 1247, 1}, {934767, 11696, 1}, {875723, 1039987, -1},
                  {898999, 1043896, -1}, {404505, 1048018, -1}}},
    [CLASS_A] = {23, 19, 10,
                 {{2112377, 103, 1}, {662041, 17522, 1}, {5336171, 123927, 1},
                  {3642833, 8288933, -1}, {4250760, 8388265, -1}}},
    [CLASS_B] = {25, 21, 10,
                 {{41869, 33422937, -1}, {812306, 10244, 1}, {5102857, 59149, 1},
                  {18232239, 33135281, -1}, {26860214, 99, 1}}},
    [CLASS_C] = {27, 23, 10,
                 {{44172927, 61147, 1}, {72999161, 882988, 1}, {74326391, 266290, 1},
                  {129606274, 133997595, -1}, {21736814, 133525895, -1}}},
};

void is_draw_keys(const struct is_class *problem, int32_t first, int32_t count, int32_t *key)
{
    const int32_t quarter = (INT32_C(1) << problem->max_key_log2) / 4;

    for (int32_t from = 0; from < count; from += CHUNK) {
        const int32_t some = count - from < CHUNK ? count - from : CHUNK;
        uint64_t seed = randlc_skip(SEED, RANDLC_MULTIPLIER, 4 * ((uint64_t)first + (uint64_t)from));
        double uniform[4 * CHUNK];
        vranlc(4 * (size_t)some, &seed, RANDLC_MULTIPLIER, uniform);
        for (int32_t i = 0; i < some; i++) {
            const double *u = uniform + 4 * i;
            key[from + i] = (int32_t)(quarter * (u[0] + u[1] + u[2] + u[3]));
        }
    }
}
