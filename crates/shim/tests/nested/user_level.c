/* The mark of a runtime on user-level threads (BOLT on Argobots): this function is loaded. */
int ABT_init(int count, char **words)
{
    (void)count, (void)words;
    return 0;
}
