# Sixteen jobs that compute for a while; three builds of it run at the same time.
ALL := $(addprefix $(OUT)/,$(shell seq 16))
all: $(ALL)
$(OUT)/%:
	@mkdir -p $(OUT); $(CC) -O2 -x c -c $(SOURCE) -o $@ -DNUMBER=$*
