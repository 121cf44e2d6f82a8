/* The words of the plug-in, without Slurm: options, lists of CPUs. Arguments are read as options of --trimtab; without any, made-up
 * texts are read, and what must hold for each is asserted. */
#include "trimtab_spank.c"

#include <assert.h>

/* The functions of Slurm, which are not called. */
void slurm_error(const char *format, ...) { (void)format; }
void slurm_spank_log(const char *format, ...) { (void)format; }
spank_err_t spank_option_register(spank_t spank, struct spank_option *opt) { (void)spank, (void)opt; return ESPANK_ERROR; }
spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...) { (void)spank, (void)item; return ESPANK_ERROR; }
spank_err_t spank_getenv(spank_t spank, const char *name, char *to, int size) { (void)spank, (void)name, (void)to, (void)size; return ESPANK_ERROR; }
spank_err_t spank_setenv(spank_t spank, const char *name, const char *to, int more) { (void)spank, (void)name, (void)to, (void)more; return ESPANK_ERROR; }
spank_err_t spank_unsetenv(spank_t spank, const char *name) { (void)spank, (void)name; return ESPANK_ERROR; }
spank_context_t spank_context(void) { return S_CTX_ERROR; }

/* A text of words and of single bytes, some of which are valid. */
static void make(unsigned *seed, char *text, size_t size) {
    static const char *const WORDS[] = {"on", "off", "strict", "audit", "strategy=", "memory=bind", "mem=", "smt=1", ",", ",", "=", "+", "%n", "\xff"};
    size_t used = 0;
    for (int left = rand_r(seed) % 12; left > 0; left--) {
        const char *word = WORDS[(size_t)rand_r(seed) % (sizeof WORDS / sizeof *WORDS)];
        char byte[2] = {(char)(1 + rand_r(seed) % 255), 0};
        if (rand_r(seed) % 8 == 0) word = byte;
        used += (size_t)snprintf(text + used, size - used, "%s", word);
    }
    text[used] = 0;
}

static void options(void) {
    unsigned seed = 1;
    int accepted = 0;
    for (int round = 0; round < 300000; round++) {
        char text[512] = "", why[128] = "";
        struct wishes wishes, again;
        make(&seed, text, sizeof text);
        if (!read_wishes(text, &wishes, why, sizeof why)) {
            assert(*why && strlen(why) < sizeof why);
            continue;
        }
        accepted++;
        assert(!*why && strlen(wishes.settings) < sizeof wishes.settings);
        assert(!wishes.off || !strcmp(text, "off"));
        for (const char *at = text; *at; at++) assert(strchr("=,:._-+", *at) || (*at >= '0' && *at <= 'z'));
        /* The settings are options, too. */
        char settings[SETTINGS_MAX];
        snprintf(settings, sizeof settings, "%s", wishes.settings[0] ? wishes.settings + 1 : "on");
        for (char *at = settings; *at; at++)
            if (*at == ' ') *at = ',';
        if (!strchr(wishes.settings, ',')) assert(read_wishes(settings, &again, why, sizeof why) && !strcmp(again.settings, wishes.settings));
    }
    assert(accepted > 1000);
}

static void lists(void) {
    unsigned seed = 2;
    for (int round = 0; round < 2000; round++) {
        mask_t mask = {{0}};
        uint32_t count = 0;
        char list[LINE_MAX_BYTES];
        for (int cpu = rand_r(&seed) % 20; cpu < 300; cpu += 1 + rand_r(&seed) % 3) {
            mask.bytes[cpu / 8] |= (unsigned char)(1 << cpu % 8);
            count++;
        }
        assert(list_of(&mask, list, sizeof list) && count_of(list) == count);
        /* A list that does not fit is refused, and not cut. */
        char small[16];
        assert(list_of(&mask, small, sizeof small) == (strlen(list) < sizeof small));
    }
    mask_t none = {{0}};
    char list[8];
    assert(!list_of(&none, list, sizeof list));
    static const char *const BAD[] = {"", "x", "1-", "-1", "3-1", "1,,2", "1;2", "0-99999999999999999999", "1,x"};
    for (size_t at = 0; at < sizeof BAD / sizeof *BAD; at++) assert(count_of(BAD[at]) == 0);
    assert(count_of(NULL) == 0 && count_of("0") == 1 && count_of("0-3,8") == 5);
    assert(has_word("a,bc", "bc") && has_word("a,bc", "a") && !has_word("a,bc", "b") && !has_word("a", "") && !has_word("", "a"));
}

/* The site's options fill in what a step does not name. */
static void layers(void) {
    char why[128], all[2 * SETTINGS_MAX];
    assert(read_wishes("strategy=scatter,smt=all", &site.wishes, why, sizeof why));
    assert(read_wishes("smt=1,memory=bind:0+1", &step.wishes, why, sizeof why));
    settings_of(all, sizeof all);
    assert(!strcmp(all, " smt=1 memory=bind:0,1 strategy=scatter"));
    /* Options that another version let pass do not stop a step, and keep it strict. */
    assert(option(1, "frob,strict", 1) == 0 && step.refused[0] && strict() && !step.wishes.settings[0]);
    assert(option(1, "frob", 0) == -1);
}

int main(int count, char *words[]) {
    if (count == 1) {
        options();
        lists();
        layers();
        puts("all hold");
    }
    for (int at = 1; at < count; at++) {
        char why[LINE_MAX_BYTES] = "";
        struct wishes wishes;
        bool read = read_wishes(words[at], &wishes, why, sizeof why);
        printf("%s\n", read ? wishes.settings : why);
    }
    return 0;
}
