"""A few layers and steps of PyTorch; prints the loss, and how many threads there are."""

import torch

torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10))
steps = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(512, 512), torch.randint(0, 10, (512,))
for _ in range(20):
    steps.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    steps.step()
print(f"threads {torch.get_num_threads()} between {torch.get_num_interop_threads()} loss {loss.item():.6f}")
