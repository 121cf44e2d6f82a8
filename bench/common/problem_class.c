/*
 * NAS problem classes: letters and parsing.  See problem_class.h.
 */
#include "common/problem_class.h"

#include <ctype.h>
#include <string.h>

/* In the order of enum problem_class. */
static const char letters[] = "SWABC";

_Static_assert(sizeof letters == CLASS_COUNT + 1, "one letter for each class");

char problem_class_letter(enum problem_class problem_class)
{
    return letters[problem_class];
}

const char *problem_class_list(void)
{
    return "S W A B C";
}

bool problem_class_parse(const char *text, enum problem_class *problem_class)
{
    if (strlen(text) != 1)
        return false;
    const char *found = strchr(letters, toupper((unsigned char)text[0]));
    if (found == NULL)
        return false;
    *problem_class = (enum problem_class)(found - letters);
    return true;
}
